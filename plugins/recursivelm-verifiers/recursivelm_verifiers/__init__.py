"""Recursive Language Models for verifiers: a harness, a taskset and an environment.

verifiers finds plugins by the name of a module and takes the one class of each kind that `__all__`
names: `vf-eval recursivelm_verifiers` evaluates a model with the engine on tasks of `rlm bench`;
`--env.agent.harness.id recursivelm_verifiers` runs any other taskset on it.
"""

from recursivelm_verifiers.harness import RecursiveLMConfig, RecursiveLMHarness
from recursivelm_verifiers.setup import HostEnv, HostEnvConfig
from recursivelm_verifiers.taskset import BenchConfig, BenchTaskset

__all__ = [
    "BenchConfig",
    "BenchTaskset",
    "HostEnv",
    "HostEnvConfig",
    "RecursiveLMConfig",
    "RecursiveLMHarness",
]
