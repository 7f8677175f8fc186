"""The harness verified for map/reduce: a model that reads each part perfectly scores 100.

The model knows no answers: whatever is cut apart, left unread, merged wrongly or lost on the way
costs it points. Who reads the text of another sample has what chance gives; test_oracle.py derives
what that is.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pytest

from rlm.bench.task import Sample, Task
from rlm.testing.scripted import ScriptedClient
from tests.bench.benches import ALL, benched
from tests.bench.honest import PARTS, Honest
from tests.bench.test_oracle import KINDS, bound


class Group(NamedTuple):
    """Tasks, the size of their contexts, and a window that makes several pieces of one."""

    tasks: Mapping[str, Task]
    size: int
    window_tokens: int


LINES = Group({s: task for s, task in ALL.items() if s.startswith("oolong")}, 2_000, 6_000)
"""A table of all labels has to fit in one prompt."""

FACTS = Group({s: task for s, task in ALL.items() if s not in LINES.tasks}, 8_000, 2_000)
"""Sometimes there are more notes than fit one prompt."""


async def by_map_reduce(
    group: Group, seeds: Sequence[int], folder: Path
) -> tuple[Honest, dict[str, list[float]]]:
    """Return the model, and the scores of each task."""
    tasks, size, window = group
    samples = [(s, task.generate(seed, size)) for s, task in tasks.items() for seed in seeds]
    model = Honest(samples)
    client = ScriptedClient(rules=[("", model)], window_tokens=window, profile="small")
    outcomes, tally = await benched(
        client, tasks, folder, seeds=seeds, methods=("mapreduce",), sizes=lambda task: size
    )
    assert (tally.failed, tally.stopped) == (0, "")
    scores: dict[str, list[float]] = {spec: [] for spec in tasks}
    for each in outcomes.values():
        assert each.score is not None
        scores[each.task].append(each.score)
    assert {len(each) for each in scores.values()} == {len(seeds)}
    return model, scores


def not_all_right(scores: Mapping[str, list[float]]) -> dict[str, list[float]]:
    return {spec: each for spec, each in scores.items() if set(each) != {1.0}}


@pytest.mark.heavy
async def test_a_perfect_reader_scores_100_on_every_task(tmp_path: Path) -> None:
    labelling, scores = await by_map_reduce(LINES, range(20), tmp_path / "lines")
    assert not_all_right(scores) == {}
    reading, scores = await by_map_reduce(FACTS, range(4), tmp_path / "facts")
    assert not_all_right(scores) == {}
    played = labelling.parts + reading.parts
    assert set(played) == set(PARTS.values())
    assert labelling.parts["label"] == 3 * 20 * len(LINES.tasks)  # three pieces each
    assert reading.parts["note"] > 5 * reading.parts["kind"]


class OfOthers(Task):
    """A task that asks its questions about the text of the next sample of the same kind."""

    name, about, scoring = "of-others", "", ""

    def __init__(self, spec: str, task: Task) -> None:
        self.task, self.further = task, KINDS.get(spec, 1)

    def generate(self, seed: int, size: int) -> Sample:
        own, other = (self.task.generate(each, size) for each in (seed, seed + self.further))
        return Sample(own.query, other.pieces, own.gold, own.facts)

    def score(self, answer: str, gold: Any) -> float:
        return self.task.score(answer, gold)


@pytest.mark.heavy
@pytest.mark.parametrize(("group", "count"), [(LINES, 10), (FACTS, 2)], ids=["lines", "facts"])
async def test_a_reader_of_other_texts_scores_at_chance_level(
    group: Group, count: int, tmp_path: Path
) -> None:
    others = {spec: OfOthers(spec, task) for spec, task in group.tasks.items()}
    _, scores = await by_map_reduce(group._replace(tasks=others), range(count), tmp_path)
    by_task: dict[str, list[float]] = {}
    for spec, each in scores.items():
        by_task.setdefault(spec.partition("/")[0], []).extend(each)
    for name, each in by_task.items():
        assert fmean(each) <= bound(name, len(each)), name


@pytest.mark.heavy
@pytest.mark.parametrize("spec", ALL)
async def test_forty_samples_of_each_task(spec: str, tmp_path: Path) -> None:
    group = LINES if spec in LINES.tasks else FACTS._replace(window_tokens=4_000)
    _, scores = await by_map_reduce(group._replace(tasks={spec: ALL[spec]}), range(40), tmp_path)
    assert not_all_right(scores) == {}
