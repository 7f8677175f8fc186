"""What Inspect finds by the entry point: agent, solver, scorer and task."""

from recursivelm_inspect.agents import rlm_agent, rlm_solver
from recursivelm_inspect.bench import rlm_bench
from recursivelm_inspect.samples import bench_scorer

__all__ = ["bench_scorer", "rlm_agent", "rlm_bench", "rlm_solver"]
