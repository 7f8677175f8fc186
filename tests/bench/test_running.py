"""Benchmarks that are interrupted, fail, run out of money, or are run twice."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlm.api import RLM
from rlm.bench.plan import Trial, works
from rlm.bench.random_text import Dice
from rlm.bench.registry import register
from rlm.bench.results import Outcome, Results, read_outcomes
from rlm.bench.running import FAILURES_IN_A_ROW
from rlm.bench.task import Sample, Task
from rlm.errors import ConfigError, ModelError, UnknownPriceError
from rlm.messages import Price, Reply, Request
from rlm.testing.scripted import ScriptedClient
from tests.bench.benches import ALL, answers_to, benched, knowing, settings_of, size_of

NEEDLE = {"s-niah/single": ALL["s-niah/single"]}
SIZE = size_of(ALL["s-niah/single"])


def lines_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def key(seed: int, method: str = "plain") -> str:
    return Trial("s-niah/single", SIZE, seed, method).key


async def test_a_second_pass_runs_only_missing_trials(tmp_path: Path) -> None:
    client = knowing(answers_to(NEEDLE, range(4)))
    await benched(client, NEEDLE, tmp_path, seeds=range(2), methods=("plain",), concurrency=1)
    assert len(client.requests) == 2
    outcomes, _ = await benched(client, NEEDLE, tmp_path, seeds=range(4), methods=("plain",))
    assert len(client.requests) == 4
    assert sorted(outcomes) == [key(seed) for seed in range(4)]
    await benched(client, NEEDLE, tmp_path, seeds=range(4), methods=("plain",))
    assert len(client.requests) == 4
    assert len(lines_in(tmp_path)) == 4
    await benched(client, NEEDLE, tmp_path, seeds=(0,), methods=("plain", "rlm"))
    assert len(client.requests) == 6  # the plain call has been made already; a run has two steps


async def test_a_result_records_everything_about_a_trial(tmp_path: Path) -> None:
    client = knowing(answers_to(NEEDLE, (0,)), price=Price(1.0, 2.0))
    outcomes, _ = await benched(client, NEEDLE, tmp_path)
    (line,) = lines_in(tmp_path)
    assert (line["status"], line["score"], line["stop_reason"]) == ("scored", 1.0, "answer")
    assert (line["steps"], line["requests"], line["calls"]) == (2, 2, 0)
    assert line["cost_usd"] > 0
    assert line["input_tokens"] > line["output_tokens"] > 0
    assert line["context_chars"] == len(NEEDLE["s-niah/single"].generate(0, SIZE).context)
    assert (line["model"], line["engine"]) == ("ScriptedClient", "1.2.3")
    assert line["answer"] in NEEDLE["s-niah/single"].generate(0, SIZE).gold
    assert outcomes[key(0, "rlm")] == msgspec.convert(line, Outcome)


async def test_failures_are_recorded_and_retried(tmp_path: Path) -> None:
    broken = ScriptedClient(rules=[("", ModelError("no power", status=400))])
    outcomes, tally = await benched(broken, NEEDLE, tmp_path, methods=("plain", "rlm"))
    assert [each.status for each in outcomes.values()] == ["failed", "failed"]
    assert {each.error for each in outcomes.values()} == {"ModelError: no power"}
    assert [each.score for each in outcomes.values()] == [None, None]
    assert tally.failed == 2
    client = knowing(answers_to(NEEDLE, (0,)))
    outcomes, tally = await benched(client, NEEDLE, tmp_path, methods=("plain", "rlm"))
    assert [each.score for each in outcomes.values()] == [1.0, 1.0]
    assert len(lines_in(tmp_path)) == 4  # nothing is rewritten: the last line of a key counts


async def test_after_consecutive_failures_no_further_samples_are_tried(tmp_path: Path) -> None:
    broken = ScriptedClient(rules=[("", ModelError("gone", status=400))])
    _, tally = await benched(
        broken, NEEDLE, tmp_path, seeds=range(30), methods=("plain",), concurrency=1
    )
    assert tally.failed == FAILURES_IN_A_ROW
    assert tally.stopped == "10 failed in a row, the last with: ModelError: gone"


async def test_a_context_beyond_the_window_is_not_possible_for_a_plain_call(tmp_path: Path) -> None:
    client = knowing(answers_to(NEEDLE, (0,)), window_tokens=1_000)
    outcomes, tally = await benched(client, NEEDLE, tmp_path, methods=("plain", "rlm"))
    plain, run = outcomes[key(0)], outcomes[key(0, "rlm")]
    assert (plain.status, plain.score, plain.requests) == ("impossible", 0.0, 0)
    assert "characters exceed" in (plain.error or "")
    assert (run.status, run.score) == ("scored", 1.0)
    assert tally.failed == 0
    sent = len(client.requests)
    await benched(client, NEEDLE, tmp_path, methods=("plain", "rlm"))
    assert len(client.requests) == sent  # it is not tried again either


async def test_mapreduce_can_be_benchmarked(tmp_path: Path) -> None:
    (gold,) = NEEDLE["s-niah/single"].generate(0, SIZE).gold
    client = ScriptedClient(rules=[("", f"It is {gold}.")])
    outcomes, _ = await benched(client, NEEDLE, tmp_path, methods=("mapreduce",))
    (outcome,) = outcomes.values()
    assert outcome.score == 1.0
    assert outcome.calls >= 1


# -- crashes ---------------------------------------------------------------------------------------


async def test_a_partial_line_is_removed_and_its_trial_repeated(tmp_path: Path) -> None:
    client = knowing(answers_to(NEEDLE, range(2)))
    await benched(client, NEEDLE, tmp_path, seeds=range(2), methods=("plain",), concurrency=1)
    path = tmp_path / "results.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[: len(second) // 2])
    assert [each.seed for each in read_outcomes(tmp_path)] == [0]
    outcomes, _ = await benched(
        client, NEEDLE, tmp_path, seeds=range(2), methods=("plain",), concurrency=1
    )
    assert len(client.requests) == 3
    assert [each["seed"] for each in lines_in(tmp_path)] == [0, 1]
    assert all(each.score == 1.0 for each in outcomes.values())


async def test_a_partial_line_longer_than_a_block_is_removed_too(tmp_path: Path) -> None:
    client = knowing(answers_to(NEEDLE, range(2)))
    await benched(client, NEEDLE, tmp_path, methods=("plain",))
    path = tmp_path / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"answer": "' + b"x" * 200_000)
    await benched(client, NEEDLE, tmp_path, methods=("plain",))
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b'{"task": 1}\n',
        b'{"task":"a","size":0,"seed":0,"method":"rlm","status":"scored","score":1}\n',
        b'{"task":"a","size":1,"seed":0,"method":"magic","status":"scored","score":1}\n',
        b'{"task":"a","size":1,"seed":0,"method":"rlm","status":"scored","score":7}\n',
        b"\xff\n",
    ],
)
def test_an_invalid_line_is_named(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_bytes(line)
    with pytest.raises(ConfigError, match=r"line 1 of .*results.jsonl is not a result"):
        list(read_outcomes(tmp_path))


async def test_contexts_of_finished_trials_are_deleted(tmp_path: Path) -> None:
    (tmp_path / ".contexts").mkdir()
    (tmp_path / ".contexts" / "of a killed process.txt").write_text("x")
    await benched(knowing(answers_to(NEEDLE, range(3))), NEEDLE, tmp_path, seeds=range(3))
    assert names_in(tmp_path) == [".lock", "results.jsonl", "runs", "settings.json"]


# -- settings --------------------------------------------------------------------------------------


async def test_results_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    client = knowing(answers_to(NEEDLE, (0,)))
    await benched(client, NEEDLE, tmp_path)
    engine = RLM(client)
    settings = settings_of(engine, NEEDLE)
    await engine.aclose()
    for change, words in (
        ({"model": "other"}, 'with model "ScriptedClient", but this run has "other"'),
        ({"limits": {"max_steps": 3}}, "with limits {}, but this run has"),
        ({"engine": "9.9"}, 'with engine "1.2.3"'),
        ({"tasks": {"s-niah/single": "2"}}, "results of an earlier version of s-niah/single"),
    ):
        other = msgspec.structs.replace(settings, **change)
        with (
            pytest.raises(ConfigError, match="choose another --out") as told,
            Results.opened(tmp_path, other),
        ):
            pass
        assert words in str(told.value)
    assert json.loads((tmp_path / "settings.json").read_text())["model"] == "ScriptedClient"
    more = msgspec.structs.replace(settings, tasks={"graphwalks/bfs": "1"})
    with Results.opened(tmp_path, more) as results:
        assert set(results.settings.tasks) == {"s-niah/single", "graphwalks/bfs"}


async def test_only_one_process_can_write_to_a_folder(tmp_path: Path) -> None:
    engine = RLM(knowing({}))
    settings = settings_of(engine, NEEDLE)
    await engine.aclose()
    with (
        Results.opened(tmp_path, settings),
        pytest.raises(ConfigError, match="another process is using"),
        Results.opened(tmp_path, settings),
    ):
        pass


# -- money and concurrency -------------------------------------------------------------------------


async def test_the_money_limit_covers_all_trials_and_the_rest_can_continue(tmp_path: Path) -> None:
    client = knowing(answers_to(NEEDLE, range(6)), price=Price(100.0, 100.0))

    async def pass_with(usd: float | None) -> tuple[dict[str, Outcome], Any]:
        return await benched(
            client, NEEDLE, tmp_path, seeds=range(6), methods=("plain",), max_cost_usd=usd
        )

    outcomes, tally = await pass_with(2.2)  # a call may cost 1.6, and does cost 0.2
    done = [each for each in outcomes.values() if each.is_done]
    assert 0 < len(done) < 6
    assert "--budget-usd" in tally.stopped
    spent = sum(each["cost_usd"] or 0 for each in lines_in(tmp_path))
    assert spent <= 2.2
    sent = len(client.requests)
    _, tally = await pass_with(spent)  # what is spent already counts
    assert "--budget-usd" in tally.stopped
    assert len(client.requests) == sent
    outcomes, tally = await pass_with(None)
    assert [each.score for each in outcomes.values()] == [1.0] * 6
    assert tally.stopped == ""


async def test_an_answer_after_a_call_that_was_refused_is_not_scored(tmp_path: Path) -> None:
    (gold,) = NEEDLE["s-niah/single"].generate(0, SIZE).gold
    cell = (
        "```repl\ntry:\n    llm_query('x' * 200_000)\nexcept Exception:\n    pass\n"
        f"FINAL('{gold}')\n```"
    )
    client = ScriptedClient(rules=[("", cell)], price=Price(100.0, 100.0))
    outcomes, tally = await benched(client, NEEDLE, tmp_path, max_cost_usd=10.0)
    (outcome,) = outcomes.values()
    assert (outcome.status, outcome.score, outcome.answer) == ("failed", None, gold)
    assert "--budget-usd" in tally.stopped
    outcomes, _ = await benched(client, NEEDLE, tmp_path)
    assert outcomes[key(0, "rlm")].score == 1.0


async def test_a_money_limit_without_a_price_is_refused_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    client = knowing(answers_to(NEEDLE, (0,)))
    with pytest.raises(UnknownPriceError):
        await benched(client, NEEDLE, tmp_path, engine_options={}, max_cost_usd=1.0)
    assert client.requests == []


async def test_the_number_of_concurrent_samples_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = knowing(answers_to(NEEDLE, range(9)))
    complete, three = client.complete, asyncio.Barrier(3)
    in_flight: list[int] = []
    most = 0

    async def together(request: Request, *, timeout_seconds: float) -> Reply:
        """Answer as soon as two others wait, too."""
        nonlocal most
        in_flight.append(1)
        most = max(most, len(in_flight))
        await three.wait()
        reply = await complete(request, timeout_seconds=timeout_seconds)
        in_flight.pop()
        return reply

    monkeypatch.setattr(client, "complete", together)
    async with asyncio.timeout(120):
        await benched(client, NEEDLE, tmp_path, seeds=range(9), methods=("plain",), concurrency=3)
    assert most == 3


def test_tasks_and_sizes_are_interleaved() -> None:
    made = list(works(["a", "b"], [1, 2], range(2), ["rlm", "plain"], {"a|1|0|rlm"}))
    assert [(each.task, each.size, each.seed) for each in made] == [
        *(("a", 1, 0), ("b", 1, 0), ("a", 2, 0), ("b", 2, 0)),
        *(("a", 1, 1), ("b", 1, 1), ("a", 2, 1), ("b", 2, 1)),
    ]
    assert made[0].methods == ("plain",)
    assert made[1].methods == ("rlm", "plain")


# -- custom tasks -------------------------------------------------------------------------------


class Echo(Task):
    """A task as a user would write it."""

    name = "echo"
    about = "say a number"
    scoring = "whatever"

    def generate(self, seed: int, size: int) -> Sample:
        value = Dice("echo", seed).below(10)
        return Sample("Which number?", lambda: [f"It is {value}."], value)

    def score(self, answer: str, gold: Any) -> float:
        return 2.0


async def test_an_invalid_score_ends_the_benchmark_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"echo: score\(\) returned 2.0"):
        await benched(ScriptedClient(["3"]), {"echo": Echo()}, tmp_path, methods=("plain",))


def test_a_task_name_can_be_registered_only_once() -> None:
    other = type("Other", (Echo,), {"name": "s-niah"})
    with pytest.raises(ConfigError, match="a task 's-niah' already exists: Needles"):
        register(other)
    with pytest.raises(ConfigError, match="needs a `name`"):
        register(type("Nameless", (Echo,), {"name": "no name"}))
