"""The tasks of `rlm bench` as datasets of Inspect, with their own scorers."""

from collections.abc import Mapping
from typing import Any

from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from rlm.bench import Task as BenchTask
from rlm.bench import find_tasks
from rlm.bench.plan import parse_size
from rlm.errors import ConfigError

__all__ = ["bench_dataset", "bench_scorer", "context_of"]

KEY = "rlm_bench"
LARGEST_DATASET = 100_000

_made: dict[str, BenchTask] = {}
"""The tasks whose samples this process made. Names in metadata of other datasets load nothing: the
name of a task may stand for a file with code."""


def bench_dataset(
    tasks: str = "s-niah", size: str = "8k", n: int = 5, seed: int = 0
) -> MemoryDataset:
    """Return `n` samples of each variant of a task, as `rlm bench` makes them from the same seeds.

    Their contexts are not in the dataset: `rlm_solver` generates each one when it is needed.
    """
    tokens = parse_size(str(size))
    found = find_tasks(tasks)
    if not 1 <= n * len(found) <= LARGEST_DATASET:
        raise ConfigError(
            f"a dataset must have 1 to {LARGEST_DATASET:,} samples, not {n * len(found):,}"
        )
    _made.update(found)
    samples = [
        _sample(spec, one, tokens, number)
        for spec, one in found.items()
        for number in range(seed, seed + n)
    ]
    return MemoryDataset(samples, name=f"{tasks} {size}")


def _sample(spec: str, one: BenchTask, size: int, seed: int) -> Sample:
    made = one.generate(seed, size)
    about = {"task": spec, "size": size, "seed": seed, "gold": made.gold}
    return Sample(
        id=f"{spec}|{size}|{seed}",
        input=made.query,
        target=one.reference(made.gold),
        metadata={KEY: about},
    )


def context_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the context of a sample of `bench_dataset`; None for any other sample."""
    about = metadata.get(KEY)
    if not isinstance(about, dict) or about.get("task") not in _made:
        return None
    return _made[about["task"]].generate(about["seed"], about["size"]).context


@scorer(metrics=[mean(), stderr()])
def bench_scorer() -> Scorer:
    """Score as `rlm bench` does: lenient about form, strict about content."""

    async def score(state: TaskState, target: Target) -> Score:
        about = state.metadata[KEY]
        answer = state.output.completion
        return Score(value=_made[about["task"]].score(answer, about["gold"]), answer=answer)

    return score
