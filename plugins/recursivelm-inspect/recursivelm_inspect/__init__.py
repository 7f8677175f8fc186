"""Recursive Language Models for Inspect (`inspect_ai`).

`rlm_solver` and `rlm_agent` answer with a run of `rlm`, whose every request goes through the model
that is evaluated; `rlm_bench` and `bench_dataset` offer the tasks of `rlm bench`. `InspectClient`
lets any model of Inspect drive a run outside of an evaluation.
"""

from recursivelm_inspect.agents import rlm_agent, rlm_solver
from recursivelm_inspect.bench import rlm_bench
from recursivelm_inspect.client import InspectClient
from recursivelm_inspect.samples import bench_dataset, bench_scorer

__all__ = [
    "InspectClient",
    "bench_dataset",
    "bench_scorer",
    "rlm_agent",
    "rlm_bench",
    "rlm_solver",
]
