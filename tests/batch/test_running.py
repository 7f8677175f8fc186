"""Concurrent rows on one budget: each answered once, in order, and every failure reported."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rlm import RLM, ModelError, ScriptedClient
from rlm.batch import outcomes, running
from rlm.batch.rows import BadRowsError, RowPosition
from rlm.context import ContextValue, StoredContext, store_context
from rlm.errors import ConfigError
from rlm.limits import Amount, Budget
from rlm.messages import PICODOLLARS, Request, Usage
from rlm.records.journal.archive import counted_in
from rlm.records.journal.metering import RunMeter
from tests.batch.desk import Desk, Held, number_of


def rows(count: int) -> list[dict[str, object]]:
    return [{"query": f"row {number} ?", "context": "x"} for number in range(count)]


def answer(request: Request) -> str:
    return f"FINAL({number_of(request) * 2})"


def answering(**options: Any) -> ScriptedClient:
    return ScriptedClient(rules=[("row ", answer)], **options)


async def test_answers_are_in_the_order_of_the_rows(tmp_path: Path) -> None:
    released: set[int] = set()
    model = Held(answer, released.__contains__)
    desk = Desk(tmp_path, model)
    written: list[int] = []

    async def backwards() -> None:
        """Let the last row answer first."""
        while len(model.waiting) < 6:
            await asyncio.sleep(0.01)
        for number in reversed(range(6)):
            written.append(len(desk.answers))
            released.add(number)
            while sum(tally.done_now for tally in desk.tallies[-1:]) < 6 - number:
                await asyncio.sleep(0.01)

    desk.write(rows(6))
    opening = asyncio.create_task(backwards())
    tally = await desk.run(concurrency=6)
    await opening
    assert (tally.total, tally.answered, tally.failed) == (6, 6, 0)
    assert [each["answer"] for each in desk.answers] == [f"{2 * n}" for n in range(6)]
    assert written == [0] * 6  # no later answer was written before the first
    assert desk.journals == []


async def test_the_number_of_concurrent_rows_is_limited(tmp_path: Path) -> None:
    desk = Desk(tmp_path, answering())
    desk.write(rows(20))
    await desk.run(concurrency=3)
    assert desk.model.max_in_flight <= 3
    assert max(tally.running for tally in desk.tallies) == 2  # reported when one has ended


async def test_ids_and_metadata_are_copied_to_the_answers(tmp_path: Path) -> None:
    desk = Desk(tmp_path, answering())
    desk.write([{"query": "row 1 ?", "id": "one", "meta": {"a": ["é\x7f\x1b"]}}])
    await desk.run()
    (found,) = desk.answers
    assert (found["row"], found["id"], found["meta"]) == (0, "one", {"a": ["é\x7f\x1b"]})
    assert desk.out.read_bytes().isascii()
    assert b"\x7f" not in desk.out.read_bytes()


async def test_failed_rows_are_retried_after_all_others(tmp_path: Path) -> None:
    order: list[int] = []

    def fail_once(request: Request) -> str | ModelError:
        number = number_of(request)
        order.append(number)
        if number == 1 and order.count(1) == 1:
            return ModelError("the server is away")
        return answer(request)

    desk = Desk(tmp_path, ScriptedClient(rules=[("row ", fail_once)]))
    desk.write(rows(4))
    tally = await desk.run(concurrency=1)
    assert order == [0, 1, 2, 3, 1]
    assert (tally.answered, tally.failed) == (4, 0)
    assert [each["answer"] for each in desk.answers] == ["0", "2", "4", "6"]


async def test_rows_that_fail_again_are_reported_and_retried_by_the_next_batch(
    tmp_path: Path,
) -> None:
    broken = True

    def maybe(request: Request) -> str | ModelError:
        if broken and number_of(request) == 1:
            return ModelError("the server is away")
        return answer(request)

    desk = Desk(tmp_path, ScriptedClient(rules=[("row ", maybe)]))
    desk.write(rows(3))
    tally = await desk.run()
    assert (tally.answered, tally.failed) == (2, 1)
    assert [each["error"] for each in desk.answers] == [None, "the server is away", None]
    asked = len(desk.model.requests)
    broken = False
    tally = await desk.run()
    assert (tally.answered, tally.failed) == (3, 0)
    assert len(desk.model.requests) == asked + 1
    assert [each["answer"] for each in desk.answers] == ["0", "2", "4"]


async def test_an_invalid_row_is_not_retried_and_may_be_corrected(tmp_path: Path) -> None:
    desk = Desk(tmp_path, answering())
    desk.write([rows(1)[0], '{"query": "row 1 ?", "context_file": "missing.txt"}', "nonsense"])
    with pytest.raises(BadRowsError, match=r"2 of 3 rows .* can't be used") as raised:
        await desk.run()
    assert (raised.value.count, len(desk.model.requests)) == (2, 0)
    tally = await desk.run(failures_in_a_row=1, skips_bad_rows=True)
    assert (tally.answered, tally.failed, tally.stopped) == (1, 2, "")
    assert [line for line, _ in tally.failures] == [2, 3]
    error = "line 2: context_file missing.txt: No such file or directory"
    assert desk.answers[1]["error"] == error
    assert "line 3" in desk.answers[2]["error"]
    desk.write([rows(1)[0], {"query": "row 1 ?"}, {"query": "row 2 ?"}])
    assert (await desk.run()).answered == 3
    assert len(desk.model.requests) == 3


async def test_the_error_of_a_file_names_it_as_the_row_does(tmp_path: Path) -> None:
    desk = Desk(tmp_path, answering())
    (tmp_path / "empty").mkdir()
    desk.write(['{"query": "?", "context_file": "empty"}'])
    await desk.run()
    error = desk.answers[0]["error"]
    assert error.startswith("line 1: context_file empty")
    assert str(tmp_path) not in error


async def test_an_answered_row_may_not_change_but_rows_may_be_added(tmp_path: Path) -> None:
    desk = Desk(tmp_path, answering())
    desk.write(rows(2))
    await desk.run()
    desk.write(rows(4))
    assert (await desk.run()).answered == 4
    assert len(desk.model.requests) == 4
    desk.write([{"query": "row 7 ?"}, *rows(4)[1:]])
    with pytest.raises(ConfigError, match=r"line 1 of .* has changed"):
        await desk.run()


async def test_many_consecutive_failures_end_the_batch(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ScriptedClient(rules=[("row ", ModelError("no such key"))]))
    desk.write(rows(100))
    tally = await desk.run(concurrency=2, tries=1, failures_in_a_row=5)
    assert tally.stopped == "5 consecutive rows failed, the last with: no such key"
    assert len(desk.model.requests) <= 6


async def test_a_file_named_by_several_rows_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[object] = []

    def store(value: ContextValue) -> StoredContext:
        stored.append(value)
        return store_context(value)

    monkeypatch.setattr(running, "store_context", store)
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "b.txt").write_text("beta")
    cell = "```repl\nFINAL(context if isinstance(context, str) else sorted(context))\n```"
    desk = Desk(tmp_path, ScriptedClient(rules=[("row ", cell)]))
    desk.write(
        [
            {"query": f"row {number} ?", "context_file": names}
            for number, names in enumerate(["a.txt", "b.txt", ["a.txt", "b.txt"]] * 4)
        ]
    )
    tally = await desk.run()
    assert tally.answered == 12
    assert len(stored) == 3
    found = [each["answer"] for each in desk.answers]
    assert found == ["alpha", "beta", found[2]] * 4
    assert "a.txt" in found[2]


# -- money ----------------------------------------------------------------------------------------


def paid(request: Request, text: str) -> Usage:
    return Usage(input_tokens=900, output_tokens=100)


async def test_the_budget_holds_for_all_rows_and_a_larger_one_continues(tmp_path: Path) -> None:
    desk = Desk(tmp_path, answering(usage=paid))
    desk.write(rows(30))
    tally = await desk.run({"max_tokens": 24_000}, concurrency=16)
    assert tally.stopped == "the budget of the batch, 24,000 tokens, does not allow another row"
    assert tally.exhausted == "tokens"
    assert desk.budget is not None
    assert desk.budget.used.tokens <= 24_000
    assert desk.budget.reserved == Amount()
    first = tally.answered
    assert 4 < first < 24
    assert tally.failed == 0
    tally = await desk.run({"max_tokens": 100_000}, concurrency=16)
    assert (tally.answered, tally.stopped) == (30, "")
    assert desk.budget.used.tokens == 30_000  # usage of the first attempt counts
    assert len(desk.model.requests) == 30
    assert [each["row"] for each in desk.answers] == list(range(30))


async def test_usage_of_a_retried_row_is_counted_once(tmp_path: Path) -> None:
    """The second of two steps fails at first; the retried row recalls the first step."""
    asked: Counter[int] = Counter()

    def reply(request: Request) -> str | ModelError:
        number = number_of(request)
        asked[number] += 1
        if asked[number] == 1:
            return "```repl\nprint('one')\n```"
        return ModelError("away") if asked[number] == 2 else answer(request)

    desk = Desk(tmp_path, ScriptedClient(rules=[("row ", reply)], usage=paid))
    desk.write(rows(4))
    assert (await desk.run()).answered == 4
    assert desk.budget is not None
    assert desk.budget.used.tokens == 4 * 2 * 1_000
    assert asked == Counter(dict.fromkeys(range(4), 3))
    assert [each["tokens"] for each in desk.answers] == [2_000] * 4


def priced(request: Request, text: str) -> Usage:
    return Usage(input_tokens=900, output_tokens=100, cost_usd=0.002)


async def test_a_failed_row_states_what_it_cost_and_why_it_ended(tmp_path: Path) -> None:
    """Row 1 gets nowhere until a guard ends its run; row 2 fails after a step, twice."""
    asked: Counter[int] = Counter()

    def reply(request: Request) -> str | ModelError:
        number = number_of(request)
        asked[number] += 1
        if number == 1:
            return "```repl\n1 / 0\n```"
        if number == 2:
            return "```repl\nprint('one')\n```" if asked[2] == 1 else ModelError("away")
        return answer(request)

    model = ScriptedClient(rules=[("row ", reply)], usage=priced)
    desk = Desk(tmp_path, model)
    desk.limits = replace(desk.limits, max_errors=2)
    desk.write(rows(3))
    tally = await desk.run(concurrency=1)
    assert (tally.answered, tally.failed) == (1, 2)
    _, stuck, away = desk.answers
    assert (stuck["stop_reason"], stuck["limit"], stuck["attempts"]) == ("error", "errors", 2)
    assert (away["stop_reason"], away["limit"], away["error"]) == ("error", None, "away")
    assert (away["requests"], away["tokens"], away["cost_usd"]) == (1, 1_000, 0.002)
    assert away["seconds"] > 0
    assert away["run_id"] in desk.journals
    assert stuck["run_id"] in desk.journals
    assert desk.budget is not None
    assert desk.budget.used.tokens == sum(each["tokens"] for each in desk.answers)
    total = sum(round(each["cost_usd"] * PICODOLLARS) for each in desk.answers)
    assert desk.budget.used.picodollars == total > 3 * 0.002 * PICODOLLARS


async def test_a_retry_that_fails_before_its_first_request_keeps_the_cost_of_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedClient(["```repl\nprint('one')\n```", ModelError("away")], usage=paid)
    desk = Desk(tmp_path, model)
    desk.write(rows(1))
    await desk.run(tries=1)
    before = desk.answers[0]["tokens"]

    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no sandbox can be started")

    monkeypatch.setattr(RLM, "aask", fail)
    await desk.run(tries=1)
    (row,) = desk.answers
    assert row["error"] == "no sandbox can be started"
    assert row["tokens"] == before == 1_000


@pytest.mark.parametrize("journaled", [True, False])
async def test_a_row_that_is_answered_after_a_failure_states_the_cost_of_both_runs(
    tmp_path: Path, journaled: bool
) -> None:
    model = ScriptedClient(["```repl\n1 / 0\n```", "42", "FINAL(7)"], usage=paid)
    desk = Desk(tmp_path, model, journaled=journaled)
    desk.limits = replace(desk.limits, max_errors=1)
    desk.write(rows(1))
    assert (await desk.run()).answered == 1
    (row,) = desk.answers
    assert (row["answer"], row["attempts"], row["tokens"]) == ("7", 2, 3_000)
    assert desk.budget is not None
    assert desk.budget.used.tokens == 3_000


async def test_usage_of_a_cancelled_row_counts_in_the_next_batch(tmp_path: Path) -> None:
    hangs = True
    model = Held(answer, lambda number: not hangs)
    desk = Desk(tmp_path, model)
    desk.write(rows(1))
    task = asyncio.create_task(desk.run())
    while not model.waiting:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (journal,) = desk.folder.journals.listed()
    lost = counted_in(journal.path).tokens
    assert lost > 500  # the whole bound of a request whose reply never came
    hangs = False
    tally = await desk.run()
    assert tally.answered == 1
    assert desk.budget is not None
    assert desk.budget.used.tokens == desk.answers[0]["tokens"] > lost


@pytest.mark.parametrize("journaled", [True, False])
async def test_a_failed_attempt_of_an_answered_row_counts_in_the_next_batch(
    tmp_path: Path, journaled: bool
) -> None:
    cut = ModelError("cut off", retryable=True, ambiguous=True, retry_after_seconds=0.0)
    replies = iter([cut])
    client = ScriptedClient(rules=[("row ", lambda each: next(replies, answer(each)))], usage=paid)
    desk = Desk(tmp_path, client)
    desk.journaled = journaled
    desk.write(rows(1))
    assert (await desk.run()).answered == 1
    assert desk.budget is not None
    used = desk.budget.used
    assert used.tokens == desk.answers[0]["tokens"] > 1_000
    await desk.run()
    assert desk.budget.used.tokens == used.tokens


async def test_what_a_row_has_cost_counts_for_the_rows_before_it(tmp_path: Path) -> None:
    """In the first batch the first row has no reply, and the second has one before it fails."""
    is_down, counted = True, list[int]()

    def reply(request: Request) -> str | ModelError:
        assert desk.budget is not None
        counted.append(desk.budget.used.tokens)
        if is_down and (number_of(request) == 0 or len(request.messages) > 2):
            return ModelError("away")
        return "```repl\nprint(1)\n```" if is_down else answer(request)

    desk = Desk(tmp_path, ScriptedClient(rules=[("row ", reply)], usage=paid))
    desk.write(rows(2))
    assert (await desk.run(tries=1, concurrency=1)).failed == 2
    is_down = False
    counted.clear()
    assert (await desk.run(concurrency=1)).answered == 2
    assert counted == [1_000, 2_000]


async def test_journals_of_answered_rows_are_kept_on_request(tmp_path: Path) -> None:
    desk = Desk(tmp_path, answering())
    desk.write(rows(2))
    await desk.run(keeps_runs=True)
    assert len(desk.journals) == 2


async def test_a_row_that_reaches_its_own_limit_has_its_best_answer(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ScriptedClient(rules=[("row ", "```repl\nprint(1)\n```")]))
    desk.limits = replace(desk.limits, max_steps=1)
    desk.write(rows(2))
    tally = await desk.run(concurrency=1)
    assert (tally.answered, tally.failed) == (2, 0)
    assert {each["stop_reason"] for each in desk.answers} == {"steps"}


# -- ends -----------------------------------------------------------------------------------------


async def test_a_cancelled_batch_continues_and_pays_nothing_twice(tmp_path: Path) -> None:
    first = "```repl\nprint('one')\n```"
    steps: Counter[int] = Counter()
    hangs = True

    def reply(request: Request) -> str:
        number = number_of(request)
        steps[number] += 1
        return first if steps[number] == 1 else answer(request)

    model = Held(reply, lambda number: not hangs or steps[number] == 0)
    desk = Desk(tmp_path, model)
    desk.write(rows(8))
    task = asyncio.create_task(desk.run(concurrency=4))
    while len(steps) < 4 or len(model.waiting) < 4:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(desk.journals) == 4
    hangs = False
    assert (await desk.run(concurrency=4)).answered == 8
    assert steps == Counter(dict.fromkeys(range(8), 2))  # no reply was requested twice
    assert desk.journals == []


async def test_only_one_process_can_run_a_batch(tmp_path: Path) -> None:
    desk = Desk(tmp_path, answering())
    desk.write(rows(1))
    with desk.folder.opened(), pytest.raises(ConfigError, match="is writing"):
        await desk.run()
    assert (await desk.run()).answered == 1


async def test_a_file_of_another_origin_is_not_overwritten(tmp_path: Path) -> None:
    desk = Desk(tmp_path, answering())
    desk.write(rows(1))
    desk.out.write_text("precious")
    with pytest.raises(ConfigError, match="--overwrite"):
        await desk.run()
    assert desk.out.read_text() == "precious"
    with desk.folder.opened(overwrite=True):
        pass
    assert (await desk.run()).answered == 1


async def test_a_damaged_table_is_reported(tmp_path: Path) -> None:
    desk = Desk(tmp_path, answering())
    desk.write(rows(1))
    desk.folder.path.mkdir()
    (desk.folder.path / "rows.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(ConfigError, match="delete it to start over"):
        await desk.run()


async def test_results_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, answering())
    with desk.folder.opened() as table:
        table.check_settings({"model": "a", "depth": 1})
        table.check_settings({"depth": 1, "model": "a"})
        with pytest.raises(ConfigError, match="model was 'a'"):
            table.check_settings({"model": "b", "depth": 1})


def test_the_outcome_of_a_hostile_answer_is_one_line(tmp_path: Path) -> None:
    position = RowPosition(0, 1, 0, 1, "d")
    meter = RunMeter(Budget.shared(), journaled=True, is_counted=False)
    error = "a\nb\u2028\x1b[2J\ud800"
    line = outcomes.broken_off(position, None, error, 1, Amount(), meter)
    assert line.isascii()
    assert line.splitlines() == [line]
    assert json.loads(line)["error"] == "a\nb\u2028\x1b[2J\ud800"
