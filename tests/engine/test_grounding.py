"""A value that a small model invented is questioned once; computed values never are."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm import RLM, Guards, Limits, ScriptedClient
from rlm.config import Profile
from rlm.engine.cells import parse_reply
from rlm.engine.grounding import is_grounded, is_literal
from rlm.prompts import nudges
from rlm.results import CellResult, Submission

TEXT = "The access code for silver-dolphin is 4821.\nJo Marsh is the harbourmaster.\n" * 40
QUERY = "What is the access code for silver-dolphin?"


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


async def requests(*script: str, profile: Profile = "tiny", **more: Any) -> tuple[int, bool, Any]:
    """How many requests a run made, whether it was asked to look again, and its answer."""
    client = ScriptedClient(script, profile=profile)
    async with RLM(client, strategy="rlm", preview_chars=0, **more) as one:
        result = await one.aask(QUERY, TEXT)
    told = "\n".join(str(r.messages[-1].content) for r in client.requests)
    return len(client.requests), nudges.LOOK_AGAIN in told, result.answer


@pytest.mark.parametrize("profile", ["tiny", "small"])
@pytest.mark.parametrize("made_up", [code("FINAL('9377')"), "FINAL: 9377", code("FINAL(9377)")])
async def test_an_invented_value_is_questioned_once(profile: Profile, made_up: str) -> None:
    script = [made_up, code("print(ctx.grep('dolphin')[0])"), "FINAL(4821)"]
    assert await requests(*script, profile=profile) == (3, True, "4821")


async def test_an_invented_code_is_rejected_even_if_repeated() -> None:
    """Seen with a real model of 1.5 billion parameters: it printed and submitted 12345."""
    made_up = code("number = '12345'\nprint(number)\nFINAL(number)")
    line = "The access code for silver-dolphin is 4821."
    assert await requests(made_up, made_up, *[line] * 3) == (5, True, line)


async def test_an_invented_word_or_small_number_is_accepted_when_repeated() -> None:
    assert await requests("FINAL(977)", "FINAL(977)") == (2, True, "977")
    assert await requests("FINAL(Zebedee)", "FINAL(Zebedee)") == (2, True, "Zebedee")


async def test_an_invented_value_in_a_variable_is_questioned_too() -> None:
    script = [code("found = '9377'\nFINAL_VAR('found')"), "FINAL(4821)"]
    assert await requests(*script) == (2, True, "4821")


@pytest.mark.parametrize("profile", ["standard", "frontier"])
async def test_answers_of_stronger_models_are_not_questioned(profile: Profile) -> None:
    assert await requests(code("FINAL('9377')"), profile=profile) == (1, False, "9377")


@pytest.mark.parametrize(
    "reply",
    [
        code("FINAL(len(context) * 7)"),
        code("n = sum(1 for _ in range(977))\nFINAL(n)"),
        code("FINAL('9377' if len(context) > 3 else '1')"),
        code("FINAL('4821')"),
        code("FINAL('Jo Marsh')"),
        code("FINAL('yes')"),
        code("FINAL('The code is not given directly; the text only says who is in charge of it.')"),
        "FINAL: silver-dolphin",
    ],
)
async def test_computed_seen_and_concluded_values_are_accepted_at_once(reply: str) -> None:
    count, asked, _ = await requests(reply)
    assert (count, asked) == (1, False)


async def test_checking_ends_with_the_guard_off_or_at_the_last_step() -> None:
    made_up = code("FINAL('9377')")
    assert await requests(made_up, guards=Guards(check_values=False)) == (1, False, "9377")
    assert await requests(made_up, limits=Limits(max_steps=1)) == (1, False, "9377")


async def test_a_typed_answer_is_checked_only_by_its_type() -> None:
    client = ScriptedClient([code("FINAL(9377)")], profile="tiny")
    async with RLM(client, strategy="rlm") as one:
        assert (await one.aask(QUERY, TEXT, response_model=int)).answer == 9377


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_value_that_occurs_in_the_text_is_grounded(before: str, after: str) -> None:
    assert is_grounded("Jo Marsh", [f"{before} jo\nMARSH {after}"])
    assert is_grounded("code 4,821", [f"{before} | code 4821 | {after}"])


@given(st.text())
def test_any_answer_and_any_code_can_be_judged(text: str) -> None:
    result = CellResult(submission=Submission(text, "FINAL"))
    assert is_literal(text, parse_reply(code(text)), (result,)) in (True, False)
    assert is_grounded(text, ()) in (True, False)
