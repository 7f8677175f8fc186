"""The reference engine's path to its types."""

from rlm.compat.types import (
    ClientBackend,
    CodeBlock,
    EnvironmentType,
    QueryMetadata,
    REPLResult,
    RLMIteration,
    RLMMetadata,
)
from rlm.compat.types import Completion as RLMChatCompletion
from rlm.compat.types import ModelUsage as ModelUsageSummary
from rlm.compat.types import UsageTotals as UsageSummary
from rlm.compat.types import plain as _serialize_value  # noqa: F401 - its name there

__all__ = [
    "ClientBackend",
    "CodeBlock",
    "EnvironmentType",
    "ModelUsageSummary",
    "QueryMetadata",
    "REPLResult",
    "RLMChatCompletion",
    "RLMIteration",
    "RLMMetadata",
    "UsageSummary",
]
