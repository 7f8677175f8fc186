"""Several runs, one answer: votes, one budget, failures, ties, resuming, and independence."""

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlm import RLM, Limits, NoAnswerError
from rlm.calls.cache import ReplyCache
from rlm.errors import ConfigError, ModelError
from rlm.events import CallEnded, CallStarted, Event, ModelAsked, RunEnded, RunStarted
from rlm.limits import Budget
from rlm.messages import Price, Request, Usage
from rlm.results import RunResult
from rlm.testing import ScriptedClient

CHEAP = Price(1.0, 1.0)


def final(value: object) -> str:
    return f"```repl\nFINAL({value!r})\n```"


def fixed_usage(request: Request, text: str) -> Usage:
    return Usage(input_tokens=100, output_tokens=10)


async def asked(*script: Any, samples: Any = 3, **options: Any) -> tuple[RunResult, ScriptedClient]:
    named = ("response_model", "limits", "strict", "run_id", "sampling", "budget")
    run = {name: options.pop(name) for name in named if name in options}
    client = options.pop("client", None) or ScriptedClient(script, price=CHEAP, usage=fixed_usage)
    async with RLM(client, **options) as engine:
        return await engine.aask("Which?", "the context", samples=samples, **run), client


def votes(result: RunResult) -> list[tuple[Any, str, int]]:
    return [(each.answer, each.stop_reason, each.votes) for each in result.samples]


def of_type(result: RunResult, kind: type) -> list[Any]:
    return [event for event in result.events if isinstance(event, kind)]


# -- votes ----------------------------------------------------------------------------------------


async def test_the_majority_wins_and_no_unneeded_samples_are_started() -> None:
    result, client = await asked(final("Paris"), final("paris."), samples=3)
    assert (result.answer, result.stop_reason) == (result.samples[0].answer, "answer")
    assert sorted(votes(result)) == [("Paris", "answer", 2), ("paris.", "answer", 2)]
    assert len(client.requests) == 2


async def test_as_many_samples_run_at_once_as_could_settle_the_vote() -> None:
    for samples, at_once in ((2, 2), (3, 2), (5, 3), (9, 5)):
        client = ScriptedClient(["yes"] * 9, delay_seconds=0.1)
        result, _ = await asked(client=client, strategy="direct", samples=samples)
        assert (result.answer, client.max_in_flight) == ("yes", at_once)
        assert len(client.requests) == at_once


async def test_another_sample_is_started_if_two_differ() -> None:
    result, client = await asked(final("a"), final("b"), final("b"), samples=3)
    assert (result.answer, len(client.requests)) == ("b", 3)
    assert sorted(each.votes for each in result.samples) == [1, 2, 2]


async def test_one_sample_is_a_plain_run() -> None:
    result, _ = await asked(final("a"), samples=1)
    plain, _ = await asked(final("a"), samples=1)
    assert result.samples == ()
    assert [type(event) for event in result.events] == [type(event) for event in plain.events]
    assert "samples" not in of_type(result, RunStarted)[0].settings
    assert {event.depth for event in result.events} == {0}


@pytest.mark.parametrize("samples", [0, 65, -1, True, 1.5, "3", None])
async def test_other_numbers_are_refused(samples: Any) -> None:
    with pytest.raises(ConfigError, match="samples must be"):
        await asked(final("a"), samples=samples)


async def test_typed_answers_are_compared_by_value() -> None:
    script = [final({"n": 1.0}), final({"n": 2}), final({"n": 1})]
    result, _ = await asked(*script, samples=3, response_model=dict[str, float])
    assert result.answer == {"n": 1.0}
    assert sorted(each.votes for each in result.samples) == [1, 2, 2]


async def test_the_blocking_form_and_plain_strategies() -> None:
    def run() -> RunResult:
        with RLM(ScriptedClient(["1,000", "1000"]), strategy="direct") as engine:
            return engine.ask("Which?", "the context", samples=2)

    result = await asyncio.to_thread(run)
    assert (result.answer, [each.votes for each in result.samples]) in (
        ("1,000", [2, 2]),
        ("1000", [2, 2]),
    )


# -- ties -----------------------------------------------------------------------------------------


async def test_a_judge_decides_ties_without_the_context() -> None:
    result, client = await asked(final("red"), final("blue"), "Answer 2 is best.", samples=2)
    assert (result.answer, result.detail) == (
        result.samples[1].answer,
        "2 answers were equally frequent; a judge chose this one",
    )
    prompt = str(client.requests[-1].messages[-1].content)
    assert "Which?" in prompt
    assert f"Answer 1:\n{result.samples[0].answer}\n\nAnswer 2:" in prompt
    assert "the context" not in prompt
    assert [event.purpose for event in of_type(result, ModelAsked)].count("judge") == 1


@pytest.mark.parametrize("reply", ["neither", "7", "", ModelError("no", retryable=False)])
async def test_a_judge_that_fails_leaves_the_first_answer(reply: Any) -> None:
    result, _ = await asked(final("red"), final("blue"), reply, samples=2)
    assert (result.answer, result.stop_reason) == (result.samples[0].answer, "answer")
    assert "this is the first" in result.detail


# -- failures -------------------------------------------------------------------------------------


async def test_some_failed_samples_do_not_fail_the_run() -> None:
    broken = ModelError("the server is on fire", retryable=False)
    result, client = await asked(broken, final("a"), final("a"), samples=3)
    assert (result.answer, result.stop_reason) == ("a", "answer")
    assert sorted(each.stop_reason for each in result.samples) == ["answer", "answer", "error"]
    assert len(client.requests) == 3


async def test_if_all_samples_fail_the_result_says_so() -> None:
    broken = [ModelError("the server is on fire", retryable=False) for _ in range(3)]
    result, _ = await asked(*broken, samples=3)
    assert (result.answer, result.stop_reason) == (None, "error")
    assert result.detail.startswith("none of 3 samples has an answer; the first: ")
    assert "on fire" in result.detail
    with pytest.raises(NoAnswerError, match="none of 3 samples"):
        await asked(*broken, samples=3, strict=True)


async def test_best_answers_are_counted_if_there_are_no_others() -> None:
    cell = "```repl\nanswer['content'] = 'maybe'\n```"
    limits = Limits(max_steps=1)
    result, _ = await asked(cell, cell, "maybe", "maybe", samples=2, limits=limits)
    assert (result.answer, result.stop_reason) == ("maybe", "steps")
    assert votes(result) == [("maybe", "steps", 2), ("maybe", "steps", 2)]


async def test_a_config_error_of_the_caller_is_raised() -> None:
    client = ScriptedClient(["x"] * 3, window_tokens=4)
    with pytest.raises(ConfigError, match="strategy='direct'"):
        await asked(client=client, strategy="direct", samples=3)


# -- one budget -----------------------------------------------------------------------------------


async def test_usage_and_cost_are_those_of_all_samples() -> None:
    result, _ = await asked(final("a"), final("b"), final("b"), samples=3)
    assert result.usage.total.requests == 3
    assert result.usage.total.total_tokens == 330
    assert result.cost_usd == pytest.approx(330e-6)
    assert sum(each.cost_usd or 0 for each in result.samples) == pytest.approx(330e-6)


@pytest.mark.parametrize("samples", [2, 5, 16])
async def test_the_token_limit_covers_all_samples_together(samples: int) -> None:
    """Every request reserves its worst case from one budget, so the sum never exceeds it."""
    client = ScriptedClient(
        rules=[("", lambda request: final(f"answer {len(client.requests)}"))],
        price=CHEAP,
        usage=lambda request, text: Usage(input_tokens=900, output_tokens=100),
    )
    limits = Limits(max_tokens=40_000)
    result, _ = await asked(client=client, samples=samples, limits=limits)
    assert result.usage.total.total_tokens <= 40_000
    shared = Budget.shared(max_tokens=40_000)
    await asked(client=client, samples=samples, budget=shared)
    assert shared.used.tokens <= 40_000


async def test_the_call_limit_covers_all_samples_together() -> None:
    cell = "```repl\nprint(llm_query('hi'))\nFINAL('a')\n```"
    rules: list[Any] = [("sub-LLM", "hello"), ("max_calls", final("a")), ("", cell)]
    client = ScriptedClient(rules=rules)
    result, _ = await asked(client=client, samples=2, limits=Limits(max_calls=1))
    calls = [event for event in of_type(result, CallEnded) if event.kind == "llm"]
    assert (result.answer, len(calls), len(client.requests)) == ("a", 1, 4)


# -- independence ---------------------------------------------------------------------------------


async def test_samples_share_no_cached_reply(tmp_path: Path) -> None:
    numbers = itertools.count()

    def reply(request: Request) -> str:
        return final(f"answer {next(numbers)}")

    class Identified(ScriptedClient):
        identity = "one"

    cache = ReplyCache(tmp_path, always=True)
    answers: list[list[Any]] = []
    for sent in (5, 0):  # The second time, each sample finds its own reply.
        client = Identified(rules=[("equally frequent", "1"), ("", reply)])
        result, _ = await asked(client=client, samples=4, cache=cache)
        answers.append([each.answer for each in result.samples])
        assert len(client.requests) == sent
    assert len(set(answers[0])) == 4
    assert answers[0] == answers[1]


async def test_samples_differ_in_seed_but_not_in_temperature() -> None:
    sampling = {"seed": 7, "temperature": 0.5}
    _, client = await asked(final("a"), final("a"), samples=2, sampling=sampling)
    assert sorted(each.sampling["seed"] for each in client.requests) == [7, 8]
    assert {each.sampling["temperature"] for each in client.requests} == {0.5}


async def test_samples_see_the_same_prompt_as_a_plain_run() -> None:
    _, several = await asked(final("a"), final("a"), samples=2)
    _, plain = await asked(final("a"), samples=1)
    assert {each.messages for each in several.requests} == {plain.requests[0].messages}


async def test_samples_leave_the_same_depth_for_child_runs_as_a_plain_run() -> None:
    cell = "```repl\nFINAL(rlm_query('say it', context='x'))\n```"
    rules: list[Any] = [("say it", final("said")), ("", cell)]
    client = ScriptedClient(rules=rules)
    result, _ = await asked(client=client, samples=2, limits=Limits(max_depth=2))
    assert result.answer == "said"
    assert max(event.depth for event in result.events) == 2
    plain = ScriptedClient([cell, "said"])
    result, _ = await asked(client=plain, samples=1, limits=Limits(max_depth=1))
    assert result.answer == "said"


# -- what is recorded -----------------------------------------------------------------------------


async def test_samples_are_child_runs() -> None:
    result, _ = await asked(final("a"), final("a"), samples=2)
    root, *children = of_type(result, RunStarted)
    assert (root.strategy, root.settings["samples"]) == ("samples", 2)
    assert [child.parent_id for child in children] == [root.run_id] * 2
    assert {child.strategy for child in children} == {"rlm"}
    assert {c.run_id for c in children} == {each.run_id for each in result.samples}
    calls = {event.call_id for event in of_type(result, CallStarted)}
    assert {child.parent_call_id for child in children} == calls
    assert {event.child_run_id for event in of_type(result, CallEnded)} == {
        each.run_id for each in result.samples
    }
    assert result.events[-1].run_id == root.run_id


async def test_the_citations_are_those_of_the_winning_sample() -> None:
    cell = "```repl\ncite(0, 3)\nFINAL('a')\n```"
    result, _ = await asked(final("b"), cell, cell, samples=3)
    assert [each.text for each in result.citations] == ["the"]
    assert of_type(result, RunEnded)[-1].citations == result.citations


class Crash(BaseException):
    """The process dies here."""


async def test_after_a_crash_nothing_is_paid_twice(tmp_path: Path) -> None:
    options: dict[str, Any] = {"journal": tmp_path, "run_id": "sampled", "samples": 3}
    long = ["```repl\nx = 1\n```", final("b")]
    broken = ModelError("gone", retryable=False)
    # The first sample ends; the second dies after its first step, as does the whole run.
    dying = ScriptedClient([final("a"), long[0], Crash()], price=CHEAP, usage=fixed_usage)
    with pytest.raises((Crash, asyncio.CancelledError)):
        await asked(client=dying, **options)
    paid_before = len(dying.requests) - 1
    again = ScriptedClient([long[1], final("b")], price=CHEAP, usage=fixed_usage)
    result, _ = await asked(client=again, **options)
    assert (result.answer, paid_before, len(again.requests)) == ("b", 2, 2)
    assert result.usage.total.requests == 4
    assert sorted(each.votes for each in result.samples) == [1, 2, 2]
    known, unused = await asked(broken, **options)
    assert (known.answer, known.samples, unused.requests) == ("b", result.samples, [])


async def test_a_stopped_run_ends_with_the_answers_of_finished_samples() -> None:
    second_began, first_ended = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedClient):
        async def complete(self, request: Request, *, timeout_seconds: float) -> Any:
            if len(self.requests) >= 1:
                self.requests.append(request)
                second_began.set()
                await asyncio.sleep(60)
            return await super().complete(request, timeout_seconds=timeout_seconds)

    class Ends:
        def record(self, event: Event) -> None:
            if isinstance(event, RunEnded):
                first_ended.set()

    client = Slow([final("a")])
    async with RLM(client) as engine:
        run = asyncio.create_task(
            engine.aask("Which?", "the context", samples=3, recorders=[Ends()])
        )
        await second_began.wait()
        await first_ended.wait()
        engine.stop()
        result = await run
    assert result.answer == "a"
    assert {each.stop_reason for each in result.samples} == {"answer", "cancelled"}


async def test_cancelling_cancels_all_samples() -> None:
    client = ScriptedClient([final("a")] * 3, delay_seconds=60)
    async with RLM(client) as engine:
        run = asyncio.create_task(engine.aask("Which?", "the context", samples=3))
        while client.in_flight < 2:
            await asyncio.sleep(0.01)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert client.in_flight == 0


def test_results_with_samples_can_be_encoded_as_json() -> None:
    checked: Callable[[Any], Any] = msgspec.json.decode
    result = asyncio.run(asked(final("a"), final("a"), samples=2))[0]
    plain = checked(msgspec.json.encode(msgspec.structs.replace(result, events=())))
    assert [each["votes"] for each in plain["samples"]] == [2, 2]
    assert json.dumps(plain["samples"])
