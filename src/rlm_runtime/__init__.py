"""rlm-runtime's names over the engine `rlm`: contexts, policies, adapters and traces.

There is no second loop here: a run is one of `rlm.RLM`, and a trace is read from its events.
"""

from rlm_runtime.adapters.base import ModelResponse, Usage
from rlm_runtime.context import Context
from rlm_runtime.policy import (
    MaxRecursionExceeded,
    MaxStepsExceeded,
    MaxSubcallsExceeded,
    MaxTokensExceeded,
    Policy,
    PolicyError,
)
from rlm_runtime.prompts import LLAMA_SYSTEM_PROMPT
from rlm_runtime.runtime import RLM
from rlm_runtime.trace import Trace, TraceStep

__all__ = [
    "LLAMA_SYSTEM_PROMPT",
    "RLM",
    "Context",
    "MaxRecursionExceeded",
    "MaxStepsExceeded",
    "MaxSubcallsExceeded",
    "MaxTokensExceeded",
    "ModelResponse",
    "Policy",
    "PolicyError",
    "Trace",
    "TraceStep",
    "Usage",
]
