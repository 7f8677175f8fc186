"""Recursive Language Models for dspy.

`SandboxInterpreter` runs the code of dspy's own modules in the engine's sandboxes, without Deno.
`RecursiveLM` is the engine as a module with a signature. `DspyClient` lets any model of dspy drive
a run of `rlm`.
"""

from recursivelm_dspy.client import DspyClient
from recursivelm_dspy.interpreter import SandboxInterpreter
from recursivelm_dspy.module import RecursiveLM

__all__ = ["DspyClient", "RecursiveLM", "SandboxInterpreter"]
