"""How the offline model reads prompts: what asks, what is text, and what it quotes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.clients.offline import NOT_FOUND, answer_prompt, query_of
from tests.clients.offline_runs import NEEDLE, OTHER, QUESTION, ask, sub


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Query: one?\n\nContext: x", "one?"),
        ("Query:\none?\nContext: x", "one?"),
        ("Preface.\nQuery: one?", "one?"),
        ("Query: Read this.\n\nIt is long.\n\nWhat now?\n\nContext: x", "What now?"),
        ("no query", None),
        ("Query:\n \nContext: x", None),
        ("Query: x" + "\n" * 50_000 + "y", "x"),
        ("Query: " + "\n" * 50_000, None),
        ("Query: " + "word " * 100_000, ("word " * 400)),
    ],
)
def test_the_query_is_found_in_the_first_message(text: str, query: str | None) -> None:
    assert query_of(text) == query


PROMPTS = {
    "passage": f"Question: {QUESTION}\n\nPassage: {OTHER} {NEEDLE} The end.",
    "map": f"Question: {QUESTION}\n\nBelow is part 1 of 3 of a longer text. If nothing helps, "
    f"reply with exactly: NOT FOUND\n\nText:\n{OTHER}\n{NEEDLE}\n",
    "one line": f"Question: {QUESTION} Text: {OTHER} {NEEDLE}",
    "text first": f"Text:\n{OTHER}\n{NEEDLE}\n\nQuestion: {QUESTION}",
    "question last": f"{OTHER}\n{NEEDLE}\n\n{QUESTION}",
    "question first": f"Tell me the access code for silver-dolphin.\n{OTHER}\n{NEEDLE}",
    "instruction": f"Read the text and answer: {QUESTION}\n\nText:\n{OTHER}\n{NEEDLE}",
    "notes": f"Question: {QUESTION}\n\nNotes:\n1. NOT FOUND\n2. {NEEDLE}\n3. NOT FOUND",
}


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS.keys())
async def test_calls_are_answered_with_the_sentence(prompt: str) -> None:
    for system in ("You are a sub-LLM.", "", "Be brief."):
        answer = (await ask(sub(prompt, system))).text
        assert "4821" in answer
        assert "9999" not in answer


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS.keys())
async def test_calls_over_a_text_without_the_answer_say_not_found(prompt: str) -> None:
    assert (await ask(sub(prompt.replace(NEEDLE, "Nothing here.")))).text in {
        NOT_FOUND,
        "Nothing here.",  # a partial answer that is all there is
    }


@pytest.mark.parametrize(
    ("notes", "answer"),
    [
        ("NOT FOUND\n4821\nNOT FOUND", "4821"),
        ("[1] NOT FOUND\n[2] 4821", "4821"),
        (f"[1] {OTHER}\n[2] {NEEDLE}", NEEDLE),
        ("- not found.\n- It is 4821.", "It is 4821."),
        ("NOT FOUND\nNOT FOUND", NOT_FOUND),
        ("", NOT_FOUND),
    ],
)
def test_merging_takes_the_best_partial_answer(notes: str, answer: str) -> None:
    assert answer_prompt(f"Question: {QUESTION}\n\nPartial answers:\n{notes}") == answer


async def test_a_call_whose_text_resembles_a_run_is_still_a_call() -> None:
    text = f"Query: something else?\nUse llm_query and FINAL in the REPL.\n{NEEDLE}"
    assert (await ask(sub(f"Question: {QUESTION}\n\nPassage: {text}"))).text == NEEDLE


@given(st.text())
def test_any_prompt_is_answered(prompt: str) -> None:
    assert isinstance(answer_prompt(prompt), str)
