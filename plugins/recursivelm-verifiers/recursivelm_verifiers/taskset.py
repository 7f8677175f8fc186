"""The tasks of `rlm bench` as a taskset, with their scores as rewards."""

from collections.abc import Iterable
from typing import Any

from pydantic import Field
from verifiers.v1 import State, Task, TaskConfig, TaskData, Taskset, TasksetConfig, Trace, reward

from rlm.bench import find_tasks
from rlm.bench.plan import parse_size

__all__ = ["BenchConfig", "BenchData", "BenchTask", "BenchTaskset", "context_of"]


class BenchConfig(TasksetConfig):
    """Which samples: as `rlm bench run TASKS --size SIZE --n N --seed SEED` makes them."""

    tasks: str = "s-niah"
    size: str = "8k"
    n: int = Field(5, ge=1, le=100_000)
    seed: int = 0


class BenchData(TaskData):
    """A sample by its seed. The context is generated when it is needed, and is in no trace."""

    bench_task: str
    size: int
    seed: int
    gold: Any


class BenchTask(Task[BenchData, State, TaskConfig]):
    """A query of a benchmark, and its right answer."""

    @reward
    async def bench_score(self, task: BenchData, trace: Trace) -> float:
        """Score the answer as `rlm bench` does, from 0 to 1."""
        return find_tasks(task.bench_task)[task.bench_task].score(trace.last_reply, task.gold)


class BenchTaskset(Taskset[BenchTask, BenchConfig]):
    """`n` samples of each variant of a task."""

    def load(self) -> Iterable[BenchTask]:
        size = parse_size(self.config.size)
        for spec, one in find_tasks(self.config.tasks).items():
            for seed in range(self.config.seed, self.config.seed + self.config.n):
                sample = one.generate(seed, size)
                data = BenchData(
                    id=f"{spec}|{size}|{seed}",
                    name=f"{spec} #{seed}",
                    prompt=sample.query,
                    bench_task=spec,
                    size=size,
                    seed=seed,
                    gold=sample.gold,
                )
                yield BenchTask(data, self.config.task)


def context_of(data: BenchData) -> str:
    """Generate the context of a sample."""
    return find_tasks(data.bench_task)[data.bench_task].generate(data.seed, data.size).context
