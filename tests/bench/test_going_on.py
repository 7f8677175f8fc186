"""Interrupted trials resume from their journals, pay nothing twice, and leave nothing behind."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlm.api import RLM
from rlm.bench.plan import Trial
from rlm.bench.results import Outcome, Results, read_outcomes
from rlm.bench.running import TrialJournals, journals_in
from rlm.errors import ConfigError, ModelError
from rlm.limits import Budget
from rlm.messages import PICODOLLARS, Price, Reply, Request
from rlm.records.journal import Journal
from rlm.records.journal.archive import counted_in, paid_in
from rlm.testing.scripted import ScriptedClient
from tests.bench.benches import ALL, benched, settings_of, size_of

SPEC = "s-niah/single"
NEEDLE = {SPEC: ALL[SPEC]}
GOLD: str = ALL[SPEC].generate(0, size_of(ALL[SPEC])).gold[0]
LOOK = "```repl\nprint('one', llm_query('a part?'))\n```"
FINAL = f"```repl\nFINAL('{GOLD}')\n```"
PRICE = Price(1.0, 1.0)


class Held(ScriptedClient):
    """A model that answers `most` requests; later ones wait until `most` is raised."""

    def __init__(self, most: int, **options: Any) -> None:
        super().__init__(rules=[("", answer)], price=PRICE, **options)
        self.most, self.answered = most, 0
        self.holds = asyncio.Event()

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        if self.answered >= self.most:
            self.holds.set()
            await asyncio.Event().wait()
        self.answered += 1
        return await super().complete(request, timeout_seconds=timeout_seconds)


def answer(request: Request) -> str:
    """Two steps and a call, or the parts of a map/reduce, or a plain call."""
    text = str(request.messages[-1].content)
    if "Reply with one word" in text:
        return "summary"
    if text.startswith("Question: "):
        return GOLD
    if text == "a part?":
        return "it is a part"
    return FINAL if "it is a part" in text else LOOK


NEEDED = {"rlm": 3, "mapreduce": 5, "plain": 1}
"""Requests of a trial by each method; map/reduce has three pieces to read."""

WINDOWS = {"mapreduce": 1_700}


def lines_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def journals(folder: Path) -> list[str]:
    return [run.run_id for run in journals_in(folder).listed()]


async def cut_off(client: Held, folder: Path, method: str, **options: Any) -> None:
    task = asyncio.ensure_future(benched(client, NEEDLE, folder, methods=(method,), **options))
    async with asyncio.timeout(30):
        await client.holds.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    client.most, client.holds = 1_000, asyncio.Event()


async def uninterrupted(folder: Path, method: str) -> float:
    """Return what the trial costs without an interruption."""
    client = Held(1_000, window_tokens=WINDOWS.get(method))
    outcomes, _ = await benched(client, NEEDLE, folder, methods=(method,))
    (outcome,) = outcomes.values()
    assert (outcome.score, outcome.requests) == (1.0, NEEDED[method])
    assert outcome.cost_usd
    return outcome.cost_usd


def spent_in(folder: Path) -> float:
    return sum((each.cost_usd or 0.0 for each in read_outcomes(folder)), 0.0)


@pytest.mark.parametrize("method", NEEDED)
async def test_an_interrupted_trial_pays_only_for_the_rest(method: str, tmp_path: Path) -> None:
    client = Held(NEEDED[method] - 1, window_tokens=WINDOWS.get(method))
    await cut_off(client, tmp_path, method)
    (line,) = lines_in(tmp_path)
    assert (line["status"], line["error"]) == ("failed", "interrupted")
    assert not (tmp_path / ".contexts").exists()
    assert journals(tmp_path) == [line["run_id"]]
    outcomes, _ = await benched(client, NEEDLE, tmp_path, methods=(method,))
    (outcome,) = outcomes.values()
    assert outcome.score == 1.0
    assert (outcome.run_id, outcome.requests) == (line["run_id"], NEEDED[method])
    assert outcome.cost_usd == pytest.approx(await uninterrupted(tmp_path / "other", method))
    assert client.answered == NEEDED[method]  # no reply was requested twice
    assert not journals_in(tmp_path).root.exists()


async def test_a_failed_trial_resumes_too(tmp_path: Path) -> None:
    away = True

    def sometimes(request: Request) -> str | ModelError:
        said = answer(request)
        return ModelError("away", status=400) if away and said == FINAL else said

    client = ScriptedClient(rules=[("", sometimes)], price=PRICE)
    outcomes, tally = await benched(client, NEEDLE, tmp_path)
    (outcome,) = outcomes.values()
    assert (outcome.status, outcome.error, tally.failed) == ("failed", "ModelError: away", 1)
    assert outcome.cost_usd == 0.0  # what was paid for is in the journal
    away = False
    outcomes, _ = await benched(client, NEEDLE, tmp_path)
    assert [each.score for each in outcomes.values()] == [1.0]
    assert len(client.requests) == NEEDED["rlm"] + 1
    assert spent_in(tmp_path) == pytest.approx(await uninterrupted(tmp_path / "other", "rlm"))


def test_a_run_that_ended_with_an_error_does_not_resume() -> None:
    """Its journal would only lead to the same error, and its costs are in its line."""
    assert not outcome_of(status="failed", stop_reason="error").goes_on
    assert outcome_of(status="failed").goes_on
    assert not outcome_of(status="scored").goes_on


def outcome_of(**facts: Any) -> Outcome:
    return Outcome(task=SPEC, size=1, seed=0, method="rlm", score=None, **facts)


async def test_money_in_journals_is_counted_as_spent_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets: list[Budget] = []
    shared = Budget.shared

    def seen(**given: Any) -> Budget:
        budgets.append(shared(**given))
        return budgets[-1]

    client = Held(2)
    await cut_off(client, tmp_path, "rlm")
    (run,) = journals_in(tmp_path).listed()
    paid_usd, before = paid_in(run.path).cost_usd, counted_in(run.path).picodollars / PICODOLLARS
    assert paid_usd
    assert before > paid_usd  # by the most that the request without a reply could have cost
    _, tally = await benched(client, NEEDLE, tmp_path, max_cost_usd=before)
    assert "--budget-usd" in tally.stopped
    assert client.answered == 2
    monkeypatch.setattr(Budget, "shared", seen)
    outcomes, tally = await benched(client, NEEDLE, tmp_path, max_cost_usd=before + 1.0)
    assert (tally.stopped, client.answered) == ("", NEEDED["rlm"])
    (outcome,) = outcomes.values()
    assert outcome.cost_usd
    (budget,) = budgets
    assert budget.limits.max_cost_usd == pytest.approx(1.0)
    assert budget.used.picodollars / PICODOLLARS == pytest.approx(outcome.cost_usd - paid_usd)


async def test_a_failed_attempt_of_a_trial_counts_in_the_next_pass(tmp_path: Path) -> None:
    cut = ModelError("cut off", retryable=True, ambiguous=True, retry_after_seconds=0.0)
    replies = iter([cut])
    client = ScriptedClient(rules=[("", lambda each: next(replies, answer(each)))], price=PRICE)
    outcomes, _ = await benched(client, NEEDLE, tmp_path)
    (outcome,) = outcomes.values()
    bound = client.requests[0].bound_tokens, client.requests[0].max_output_tokens
    assert outcome.kept_usd == pytest.approx(PRICE.bound(*bound) / PICODOLLARS)
    assert outcome.cost_usd
    spent = outcome.cost_usd + outcome.kept_usd
    sent = len(client.requests)
    _, tally = await benched(client, NEEDLE, tmp_path, seeds=range(2), max_cost_usd=spent)
    assert "--budget-usd" in tally.stopped
    assert len(client.requests) == sent


async def test_a_trial_stopped_by_the_money_limit_resumes(tmp_path: Path) -> None:
    """The second step is refused: it includes the long reply of the first, which is too costly."""

    def wordy(request: Request) -> str:
        said = answer(request)
        return f"{'A word. ' * 4_000}\n{LOOK}" if said == LOOK else said

    client = ScriptedClient(rules=[("", wordy)], price=PRICE, window_tokens=100_000)
    _, tally = await benched(client, NEEDLE, tmp_path, max_cost_usd=0.045)
    assert "--budget-usd" in tally.stopped
    (line,) = lines_in(tmp_path)
    assert (line["status"], line["stop_reason"]) == ("failed", None)
    assert line["cost_usd"] == 0  # The journal holds all that was paid, its last words too.
    sent = len(client.requests)
    outcomes, _ = await benched(client, NEEDLE, tmp_path)
    assert [each.score for each in outcomes.values()] == [1.0]
    texts = Counter(str(request.messages) for request in client.requests)
    assert set(texts.values()) == {1}
    assert len(client.requests) > sent > 0
    assert sum(each.requests for each in outcomes.values()) == len(client.requests)


async def test_an_answer_that_has_no_line_yet_is_scored_without_a_request(tmp_path: Path) -> None:
    """A kill between the end of a run and the line of its trial."""
    client = Held(1_000)
    first, _ = await benched(client, NEEDLE, tmp_path, keeps_runs=True)
    (tmp_path / "results.jsonl").write_text("")
    again, _ = await benched(client, NEEDLE, tmp_path, max_cost_usd=1.0)
    ((key, one),), ((other_key, other),) = first.items(), again.items()
    assert client.answered == NEEDED["rlm"]
    assert (other_key, other.score, other.requests) == (key, one.score, one.requests)
    assert (other.calls, other.steps, other.cost_usd) == (one.calls, one.steps, one.cost_usd)
    assert one.calls == 1


async def test_journals_are_kept_on_request_and_otherwise_removed(
    tmp_path: Path,
) -> None:
    client = Held(1_000)
    outcomes, _ = await benched(client, NEEDLE, tmp_path, keeps_runs=True)
    (outcome,) = outcomes.values()
    assert journals(tmp_path) == [outcome.run_id]
    assert len(list(journals_in(tmp_path).contexts.iterdir())) == 1
    await benched(client, NEEDLE, tmp_path)  # as after a kill: trial ended, journal left
    assert not journals_in(tmp_path).root.exists()
    assert client.answered == NEEDED["rlm"]


async def test_contexts_do_not_accumulate_beside_resumable_trials(tmp_path: Path) -> None:
    broken = ScriptedClient(rules=[("", ModelError("gone", status=400))])
    await benched(broken, NEEDLE, tmp_path, seeds=range(3))
    assert len(journals(tmp_path)) == 3
    assert list(journals_in(tmp_path).contexts.iterdir()) == []


async def test_a_journal_in_use_is_not_reported_as_an_impossible_trial(
    tmp_path: Path,
) -> None:
    client = Held(0)
    await cut_off(client, tmp_path, "plain")
    (run_id,) = journals(tmp_path)
    journal = Journal(journals_in(tmp_path).journal_of(run_id))
    try:
        with pytest.raises(ConfigError, match="is executing run"):
            await benched(client, NEEDLE, tmp_path, methods=("plain",))
    finally:
        journal.close()
    assert [each.status for each in read_outcomes(tmp_path)] == ["failed"]


async def test_other_settings_have_other_run_ids(tmp_path: Path) -> None:
    engine = RLM(Held(0))
    settings = settings_of(engine, NEEDLE)
    await engine.aclose()
    trial = Trial(SPEC, 2_000, 0, "rlm")
    ids: set[str] = set()
    for change in ({}, {"model": "other"}, {"tasks": {SPEC: "9"}}):
        folder = tmp_path / str(len(ids))
        with Results.opened(folder, msgspec.structs.replace(settings, **change)) as results:
            journals_of = TrialJournals(results)
            ids.add(journals_of.run_id(trial))
            assert journals_of.run_id(trial) != journals_of.run_id(Trial(SPEC, 2_000, 1, "rlm"))
    assert len(ids) == 3
