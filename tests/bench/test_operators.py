"""The method `operators`: the task says what to label, and makes the answer from the labels."""

import asyncio
from pathlib import Path

import pytest

from rlm.bench.plan import check_methods
from rlm.bench.random_text import SUBJECTS, labelled_texts
from rlm.bench.task import Task
from rlm.errors import ConfigError
from rlm.messages import Price, Reply, Request
from rlm.testing import NoisyOracle
from tests.bench.benches import ALL, benched

SPEC = "oolong/counting"
COUNTING: dict[str, Task] = {SPEC: ALL[SPEC]}
SIZE = 2_000
GOLD: dict[str, str | bool] = {
    text: label
    for name in SUBJECTS
    for label, own in zip(labelled_texts(name).labels, labelled_texts(name).texts, strict=True)
    for text in own
}


@pytest.mark.parametrize("seed", range(8))
def test_correct_labels_give_the_gold_answer(seed: int) -> None:
    """Eight seeds are two of each kind of question."""
    task = COUNTING[SPEC]
    sample = task.generate(seed, SIZE)
    made = task.labelling(sample)
    assert made is not None
    assert len(made.items) == sample.facts["lines"]
    labels = [str(GOLD[item]) for item in made.items]
    assert set(labels) <= set(made.labels)
    assert made.answer(labels) == task.reference(sample.gold)


def test_wrong_labels_give_another_count() -> None:
    sample = COUNTING[SPEC].generate(1, SIZE)
    made = COUNTING[SPEC].labelling(sample)
    assert made is not None
    assert made.answer([None] * len(made.items)) == "0" != str(sample.gold["value"])


@pytest.mark.parametrize("spec", sorted(set(ALL) - {SPEC}))
def test_tasks_without_labels_are_refused_before_anything_is_paid(spec: str) -> None:
    with pytest.raises(ConfigError, match=f"operators can't answer {spec}"):
        check_methods({spec: ALL[spec]}, ["rlm", "operators"])
    check_methods({spec: ALL[spec]}, ["rlm", "plain", "mapreduce"])
    check_methods(COUNTING, ["operators"])


async def test_operators_can_be_benchmarked(tmp_path: Path) -> None:
    client = NoisyOracle(GOLD, omission_rate=0.2, drift_rate=0.3)
    outcomes, tally = await benched(
        client,
        COUNTING,
        tmp_path,
        seeds=range(4),
        methods=("operators",),
        sizes=lambda task: SIZE,
    )
    assert (tally.failed, tally.stopped) == (0, "")
    assert [each.score for each in outcomes.values()] == [1.0] * 4
    assert {each.steps for each in outcomes.values()} == {0}
    assert sum(each.requests for each in outcomes.values()) == len(client.requests)
    assert all(each.calls == each.requests for each in outcomes.values())


async def test_wrong_labels_lower_the_score(tmp_path: Path) -> None:
    outcomes, _ = await benched(
        NoisyOracle(GOLD, error_rate=0.4),
        COUNTING,
        tmp_path,
        seeds=(1, 5),
        methods=("operators",),
        sizes=lambda task: SIZE,
    )
    assert all(each.score is not None and each.score < 1 for each in outcomes.values())


class Held(NoisyOracle):
    """A model that answers two requests; later ones wait until it is released."""

    def __init__(self) -> None:
        super().__init__(GOLD, price=Price(1.0, 1.0))
        self.most = 1
        self.holds = asyncio.Event()

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        if len(self.requests) >= self.most:
            self.holds.set()
            await asyncio.Event().wait()
        return await super().complete(request, timeout_seconds=timeout_seconds)


async def test_an_interrupted_trial_requests_only_the_remaining_labels(tmp_path: Path) -> None:
    client = Held()

    async def bench() -> float | None:
        outcomes, _ = await benched(
            client,
            COUNTING,
            tmp_path,
            seeds=(1,),
            methods=("operators",),
            sizes=lambda task: 2 * SIZE,
        )
        (outcome,) = outcomes.values()
        return outcome.score

    task = asyncio.ensure_future(bench())
    async with asyncio.timeout(30):
        await client.holds.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    client.most = 1_000
    assert await bench() == 1.0
    marked_again = {text for text, looks in client.looks.items() if looks > 1}
    assert len(client.requests) > 2
    assert len(marked_again) < len(client.looks) / 5  # second looks at unsure items, nothing else
