"""A task of `rlm bench` as a task of Inspect."""

from inspect_ai import Task, task

from recursivelm_inspect.agents import rlm_solver
from recursivelm_inspect.samples import bench_dataset, bench_scorer

__all__ = ["rlm_bench"]


@task
def rlm_bench(
    tasks: str = "s-niah",
    size: str = "8k",
    n: int = 5,
    seed: int = 0,
    max_steps: int = 30,
    environment: str = "auto",
) -> Task:
    """Evaluate a model with the engine on a task of `rlm bench`."""
    return Task(
        dataset=bench_dataset(tasks, size, n, seed),
        solver=rlm_solver(max_steps=max_steps, environment=environment),
        scorer=bench_scorer(),
    )
