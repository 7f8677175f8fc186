"""The hint in the first message: by the words of the query, rarely by a question to a model."""

from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm import RLM, Limits, ModelError, RunResult, ScriptedClient, prompts
from rlm.bench.task import Task as BenchTask
from rlm.engine.kinds import KINDS, surely
from rlm.events import CallStarted
from rlm.prompts.hints import HINTS, hint

DONE = "```repl\nFINAL(len(context))\n```"
OPEN = "Explain with care the reasoning behind section nine"
LARGE = "a line of text\n" * 4_000


def first(client: ScriptedClient) -> str:
    """The first message of the run itself, after the question about the kind, if any."""
    asked = [r for r in client.requests if "REPL" in str(r.messages[0].content)]
    return str(asked[0].messages[1].content)


def questions(client: ScriptedClient) -> list[str]:
    texts = [str(r.messages[-1].content) for r in client.requests]
    return [text for text in texts if "Reply with one word" in text]


async def asked(query: str, context: Any = LARGE, kind: Any = "summary", **more: Any) -> Any:
    client = ScriptedClient([DONE], [("Reply with one word", kind)])
    async with RLM(client, **more) as one:
        result = await one.aask(query, context)
    assert result.stop_reason == "answer"
    return client, result


async def test_the_hint_tells_weak_models_to_classify_every_item() -> None:
    strong, _ = await asked("Which label is the most common one?")
    weak, _ = await asked("Which label is the most common one?", profile="small", strategy="rlm")
    assert "label in code what plain words settle" in first(strong)
    assert "Hint: `classify` all items once" in str(weak.requests[0].messages)


# -- by words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("How many of the complaints are about late trains?", "count"),
        ("What is the total number of ferries?", "count"),
        ("What is the phone number of Jo Marsh?", "find"),
        ("Which label is the most common one?", "label"),
        ("Classify each message as spam or ham.", "label"),
        ("Find all pairs of users who wrote on the same day.", "pairs"),
        ("List every supplier named in the report.", "list"),
        ("Name all people that signed.", "list"),
        ("Summarise the report in three sentences.", "summary"),
        ("What are the main findings?", "summary"),
        ("Who is the harbourmaster?", "find"),
        ("What is the access code for silver-dolphin?", "find"),
        ("In which year was the bridge built?", "find"),
        ("The text is a novel. Where does Emma live?", "find"),
        ("q", "find"),
        (prompts.FIXED_QUERY, "find"),
        (OPEN, None),
        ("Compare the termination clauses of both contracts in detail", None),
        ("Nenne die Gründe, aus denen der Vertrag endete", None),
    ],
)
def test_the_kind_of_a_query_follows_from_its_words(query: str, kind: str | None) -> None:
    assert surely(query) == kind


@given(st.text() | st.text("which how many list all pairs .?\n", max_size=200))
def test_any_query_has_a_known_kind_or_none(query: str) -> None:
    assert surely(query) in (*KINDS, None)


def test_both_ends_of_a_very_long_query_are_read() -> None:
    assert surely("x " * 1_000_000 + "How many lines are there?") == "count"
    assert surely("Summarise this. " + "x " * 1_000_000) == "summary"


KINDS_OF_TASKS = {
    ("codeqa", "calls"): "count",
    ("codeqa", "raises"): "find",
    ("graphwalks", "bfs"): "find",
    ("graphwalks", "parents"): "find",
    ("multihop", "3-hops"): "find",
    ("s-niah", "single"): "find",
    ("s-niah", "multi-query"): "find",
    ("oolong", "counting"): "label",
    ("oolong", "user"): "label",
    ("oolong", "timeline"): "label",
    ("oolong-pairs", ""): "pairs",
}


def test_words_determine_the_kind_of_every_benchmark_task() -> None:
    for path in Path(import_module("rlm.bench.tasks").__path__[0]).glob("[a-z]*.py"):
        import_module(f"rlm.bench.tasks.{path.stem}")
    tasks = {each.name: each for each in BenchTask.__subclasses__()}
    for (name, variant), kind in KINDS_OF_TASKS.items():
        made = [tasks[name](variant).generate(seed, 4_000).query for seed in range(5)]
        assert Counter(map(surely, made)) == {kind: 5}, (name, variant)


# -- in the first message -------------------------------------------------------------------------


def test_every_kind_except_lookups_has_a_hint() -> None:
    assert HINTS.keys() == {*KINDS} - {"find"}
    assert hint("find") == hint(None) == ""
    assert "classify" in hint("label")


async def test_a_counting_query_gets_its_hint_without_a_request() -> None:
    client, _ = await asked("How many lines are about trains?")
    assert f"\n{hint('count')}\n" in first(client)
    assert len(client.requests) == 1


async def test_a_lookup_gets_no_hint() -> None:
    client, _ = await asked("Who is the harbourmaster?")
    assert "Hint:" not in first(client)
    assert len(client.requests) == 1


@pytest.mark.parametrize("more", [{"orchestrator": False}, {"system_prompt": "Use the REPL."}])
async def test_custom_instructions_get_no_hint(more: dict[str, Any]) -> None:
    client, _ = await asked("How many lines are about trains?", **more)
    assert "Hint:" not in first(client)


async def test_a_query_without_a_context_gets_no_hint() -> None:
    client, _ = await asked("How many days has a leap year?", "")
    assert "Hint:" not in first(client)


# -- the question ---------------------------------------------------------------------------------


async def test_if_words_do_not_tell_the_kind_a_model_is_asked_once() -> None:
    client, result = await asked(OPEN)
    assert hint("summary") in first(client)
    assert len(questions(client)) == 1
    assert len(client.requests) == 2
    started = [event for event in result.events if isinstance(event, CallStarted)]
    assert [event.step for event in started] == [0]


@pytest.mark.parametrize(
    ("context", "more"),
    [
        ("a short text", {}),
        (LARGE, {"preview_chars": 0}),
        (LARGE, {"limits": Limits(max_calls=20)}),
        (LARGE, {"limits": Limits(max_tokens=90_000)}),
        (LARGE, {"orchestrator": False}),
    ],
)
async def test_no_hint_is_requested_for_small_contexts_or_budgets_or_isolated_runs(
    context: str, more: dict[str, Any]
) -> None:
    client, _ = await asked(OPEN, context, **more)
    assert len(client.requests) == 1


async def test_completion_never_requests_a_hint() -> None:
    client = ScriptedClient([DONE])
    async with RLM(client) as one:
        await one.acompletion(LARGE, OPEN)
    assert len(client.requests) == 1


@pytest.mark.parametrize(
    "kind", ["", "count or list", "I can't say", ModelError("busy", retryable=False)]
)
async def test_without_a_usable_kind_there_is_no_hint(kind: Any) -> None:
    client, _ = await asked(OPEN, kind=kind)
    assert "Hint:" not in first(client)


async def test_a_resumed_run_does_not_request_the_hint_again(tmp_path: Path) -> None:
    async def run(*script: Any) -> tuple[ScriptedClient, RunResult]:
        client = ScriptedClient(script, [("Reply with one word", "summary")])
        async with RLM(client, journal=tmp_path) as one:
            return client, await one.aask(OPEN, LARGE, run_id="asked-once")

    with pytest.raises(ModelError):
        await run("```repl\nx = 1\n```", ModelError("gone", retryable=False))
    client, result = await run(DONE)
    assert result.answer == str(len(LARGE))
    assert questions(client) == []
    assert hint("summary") in first(client)
