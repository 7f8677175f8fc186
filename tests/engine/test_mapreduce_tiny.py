"""A tiny model reads few small pieces and copies lines of them; invented text is dropped."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.haystack import make_haystack
from rlm import prompts
from rlm.api import RLM
from rlm.engine.mapreduce.pieces import split
from rlm.engine.mapreduce.tiny import (
    TINY_OUTPUT_TOKENS,
    TINY_PIECE_CHARS,
    grounded,
    relevant,
    whole_line,
)
from rlm.limits import Limits
from rlm.messages import Request
from rlm.testing.scripted import ScriptedClient
from tests.fakes import PlanEnvironment

FILLER = "The weather was mild and the road was long. " * 20
FACT = "The vault of Norwich opens with 4821."
QUERY = "Which number opens the vault of Norwich?"


def text_of(request: Request) -> str:
    return str(request.messages[-1].content)


def copies(request: Request) -> str:
    """Behaves like models of this size: copies a line that looks right, or invents one."""
    lines = [line for line in text_of(request).splitlines() if "opens with" in line]
    return lines[0] if lines else "The vault of Norwich opens with 123456789."


def engine(answer: Any, **more: Any) -> tuple[RLM, ScriptedClient]:
    client = ScriptedClient(rules=[("", answer)], window_tokens=8_000, profile="tiny")
    rlm = RLM(client, environment=PlanEnvironment(), strategy="auto", **more)
    return rlm, client


def document(*facts: str) -> str:
    parts = [f"{FILLER}\n{fact}\n{FILLER}" for fact in facts]
    return "\n\n".join([FILLER] * 20 + parts + [FILLER] * 20)


async def test_a_tiny_model_reads_only_relevant_pieces_and_one_note_is_the_answer() -> None:
    rlm, client = engine(copies)
    result = await rlm.aask(QUERY, document(FACT))
    assert (result.answer, result.answer_source) == (FACT, "asked")
    assert len(client.requests) <= 2  # pieces overlap
    assert len(text_of(client.requests[0])) < TINY_PIECE_CHARS + 200
    assert client.requests[0].max_output_tokens == TINY_OUTPUT_TOKENS
    assert "NOT FOUND" not in text_of(client.requests[0])


async def test_a_lower_output_limit_overrides_the_tiny_cap() -> None:
    rlm, client = engine(copies, limits=Limits(call_output_tokens=50))
    await rlm.aask(QUERY, document(FACT))
    assert client.requests[0].max_output_tokens == 50


async def test_several_notes_are_merged_and_an_invented_merger_is_rejected() -> None:
    second = "The vault of Norwich opens with 7777, says another."

    def merges(request: Request) -> str:
        return "It is 99." if "[2]" in text_of(request) else copies(request)

    rlm, client = engine(merges)
    result = await rlm.aask(QUERY, document(FACT, second))
    assert result.answer in {FACT, second}
    assert "[1]" in text_of(client.requests[-1])
    rlm, client = engine(lambda r: second if "[2]" in text_of(r) else copies(r))
    assert (await rlm.aask(QUERY, document(FACT, second))).answer == second


async def test_text_that_is_not_in_the_context_is_not_an_answer() -> None:
    rlm, _ = engine(lambda request: "The vault of Norwich opens with 123456789.")
    assert (await rlm.aask(QUERY, document(FACT))).answer == "NOT FOUND"
    rlm, _ = engine(lambda request: "NOT FOUND")
    assert (await rlm.aask(QUERY, document(FACT))).answer == "NOT FOUND"


async def test_if_no_word_of_the_query_is_distinctive_every_piece_is_read() -> None:
    rlm, client = engine(lambda request: "mild")
    text = document()
    await rlm.aask("Qui aboie?", text)
    assert len(client.requests) == len(split(text, TINY_PIECE_CHARS))


async def test_a_reply_that_repeats_the_question_is_replaced_by_the_matching_line() -> None:
    rlm, _ = engine(lambda request: "Norwich")
    assert (await rlm.aask(QUERY, document(FACT))).answer == FACT


@pytest.mark.parametrize(
    ("note", "line"),
    [
        ("norwich.", FACT),
        ('The number is the "vault of NORWICH".', FACT),
        ("?", FACT),
        ("Norwich: 4821", "Norwich: 4821"),
        ("NOT FOUND", "NOT FOUND"),
        ("", ""),
    ],
)
def test_a_note_is_completed_to_its_line_only_if_nothing_was_added(note: str, line: str) -> None:
    assert whole_line(note, f"It was late. {FACT}\nafter", QUERY) == line


@given(st.text(max_size=20), st.text(max_size=80), st.text(max_size=20))
def test_completing_never_fails_and_never_invents(note: str, piece: str, query: str) -> None:
    found = whole_line(note, piece, query)
    assert found == note or found in piece


async def test_other_profiles_read_everything_in_large_pieces() -> None:
    client = ScriptedClient(rules=[("", copies)], window_tokens=8_000, profile="tiny")
    rlm = RLM(client, environment=PlanEnvironment(), strategy="mapreduce", profile="small")
    await rlm.aask(QUERY, document(FACT))  # the profile that was given wins
    assert "Reply with one word" in text_of(client.requests[0])
    assert all("NOT FOUND" in text_of(request) for request in client.requests[1:])
    assert max(len(text_of(request)) for request in client.requests) > 10_000


async def test_a_typed_answer_is_made_from_the_note() -> None:
    def typed(request: Request) -> str:
        return '{"number": 4821}' if "JSON" in text_of(request) else copies(request)

    rlm, _ = engine(typed)
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    result = await rlm.aask(QUERY, document(FACT), response_model=schema)
    assert result.answer == {"number": 4821}


@pytest.mark.parametrize(
    "seed",
    [*range(15), *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(15, 50))],
)
def test_the_piece_with_the_needle_comes_first(seed: int) -> None:
    haystack = make_haystack(100_000, seed, shape="prose")
    pieces = [haystack.text[start:end] for start, end in split(haystack.text, TINY_PIECE_CHARS)]
    chosen = relevant(haystack.question, pieces)
    assert haystack.value in chosen[0]
    assert len(chosen) <= 20 < len(pieces)


@given(st.text(max_size=40), st.lists(st.text(max_size=60), max_size=8))
def test_relevant_returns_some_of_the_pieces_and_never_none(query: str, pieces: list[str]) -> None:
    chosen = relevant(query, pieces)
    assert all(chosen.count(piece) <= pieces.count(piece) for piece in chosen)
    assert bool(chosen) == bool(pieces)


@pytest.mark.parametrize(
    ("note", "kept"),
    [
        ("4821", True),
        (FACT, True),
        ("The number is 4821.", True),
        ("It opens with 1234.", False),
        ("Norwich", False),
        ("", False),
        ("I am sorry, but as an assistant I can not say.", False),
    ],
)
def test_a_note_is_grounded_if_its_piece_says_it(note: str, kept: bool) -> None:
    assert grounded(note, f"{FILLER}{FACT}", QUERY) is kept


def test_the_tiny_prompts_end_with_the_question() -> None:
    for prompt in (
        prompts.tiny_map_prompt("Why?", "a {{b}}"),
        prompts.tiny_reduce_prompt("Why?", "n"),
    ):
        assert prompt.endswith("this question: Why?")
        assert re.match(r"a \{\{b\}\}|n", prompt)
