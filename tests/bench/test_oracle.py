"""The harness verified: a model with the right answers scores 100, with others' answers chance.

Every task and variant goes through the real engine and real sandboxed sessions, and by plain calls.

What chance is: for each task the mean score of the right answers of *other* samples. Numbers of
seven digits, coined names, names of nodes and pairs of users are drawn anew for each sample: those
of another are right with a probability far below a thousandth, so 0.01 is generous. Four choices
agree in a quarter of all pairs of samples; these agreements are pairwise uncorrelated, so the
mean over n(n-1)/2 pairs has the variance 3/16 / (n(n-1)/2). For `oolong`, an answer to the same
kind of question is right by chance if it is one of three comparisons (about a half), a label
(if the labels are the same ones, a third of the time; then up to a half), or a number nearby: on
average over the kinds not more than 0.3.
"""

import math
from pathlib import Path
from statistics import fmean

import pytest

from rlm.bench.task import Task
from tests.bench.benches import ALL, answers_to, benched, knowing, size_of

CHANCE = {"s-niah": 0.01, "multihop": 0.01, "graphwalks": 0.01, "oolong-pairs": 0.01, "oolong": 0.3}
KINDS = {"oolong/counting": 4, "oolong/user": 4, "oolong/timeline": 5}
"""The number of seeds until the next question of the same kind; 1 for other tasks."""


def bound(spec: str, pairs: int) -> float:
    """An upper bound on the mean score of answers to other samples, by the number of pairs."""
    if spec.startswith("codeqa"):
        return 0.25 + 4 * math.sqrt(3 / 16 / pairs)
    return CHANCE[spec.partition("/")[0]]


def agreement(task: Task, spec: str, count: int) -> tuple[float, int]:
    """The mean score of answers to other questions of the same kind, over all pairs of samples."""
    golds = [task.generate(seed, size_of(task)).gold for seed in range(count)]
    scores = [
        task.score(task.reference(golds[other]), golds[one])
        for one in range(count)
        for other in range(count)
        if other != one and (other - one) % KINDS.get(spec, 1) == 0
    ]
    return fmean(scores), len(scores) // 2


@pytest.mark.parametrize("spec", ALL)
def test_answers_to_other_samples_score_at_chance_level(spec: str) -> None:
    mean, pairs = agreement(ALL[spec], spec, 40 if spec.startswith("oolong") else 12)
    assert mean <= bound(spec, pairs)


async def test_a_model_that_knows_the_answers_scores_100_on_every_task(tmp_path: Path) -> None:
    client = knowing(answers_to(ALL, (0,)))
    outcomes, tally = await benched(client, ALL, tmp_path, methods=("rlm", "plain"), concurrency=4)
    assert len(outcomes) == 2 * len(ALL)
    assert {key: each.score for key, each in outcomes.items() if each.score != 1.0} == {}
    assert {each.steps for each in outcomes.values() if each.method == "rlm"} == {2}
    assert (tally.failed, tally.stopped) == (0, "")


async def test_a_model_with_answers_to_other_samples_scores_at_chance_level(tmp_path: Path) -> None:
    """The scores are exactly those that the scorers give such answers."""
    seeds = range(2)
    client = knowing(answers_to(ALL, seeds, from_next=1))
    outcomes, _ = await benched(client, ALL, tmp_path, seeds=seeds, concurrency=4)
    for spec, task in ALL.items():
        golds = [task.generate(seed, size_of(task)).gold for seed in seeds]
        expected = [task.score(task.reference(golds[1 - seed]), golds[seed]) for seed in seeds]
        got = [outcomes[f"{spec}|{size_of(task)}|{seed}|rlm"].score for seed in seeds]
        assert got == expected
        if not spec.startswith("codeqa"):
            assert sum(expected) <= 0.02


@pytest.mark.heavy
@pytest.mark.parametrize("spec", ALL)
async def test_twenty_samples_of_each_task_by_both(spec: str, tmp_path: Path) -> None:
    task, seeds, further = ALL[spec], range(20), KINDS.get(spec, 1)
    right = knowing(answers_to({spec: task}, seeds))
    outcomes, _ = await benched(right, {spec: task}, tmp_path / "right", seeds=seeds)
    assert [each.score for each in outcomes.values()] == [1.0] * 20
    shuffled = knowing(answers_to({spec: task}, seeds, from_next=further))
    outcomes, _ = await benched(shuffled, {spec: task}, tmp_path / "shuffled", seeds=seeds)
    golds = [task.generate(seed, size_of(task)).gold for seed in seeds]
    others = [task.reference(golds[(seed + further) % 20]) for seed in seeds]
    expected = [task.score(others[seed], golds[seed]) for seed in seeds]
    assert [outcomes[f"{spec}|{size_of(task)}|{seed}|rlm"].score for seed in seeds] == expected
    mean, pairs = agreement(task, spec, 60)
    assert mean <= bound(spec, pairs)
