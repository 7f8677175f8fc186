"""The reference engine's interface: its constructor, attributes, result, types, logs and classes.

`spelling.py` decides once whether an `RLM` was called in the reference's way; the rest follows that
decision. One-line modules at the reference's own paths (`rlm.core.types`, `rlm.clients.base_lm` …)
offer these names to programs that import them there; our own code never imports those.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand
from rlm.compat.attributes import ReferenceAttributes
from rlm.compat.spelling import ReferenceKeywords, Spelling, accepts_reference_keywords

if TYPE_CHECKING:
    from rlm.compat.recording import announce
    from rlm.compat.results import completion_of, raise_if_ended_early
    from rlm.compat.types import Completion, ModelUsage, UsageTotals

__all__ = [
    "Completion",
    "ModelUsage",
    "ReferenceAttributes",
    "ReferenceKeywords",
    "Spelling",
    "UsageTotals",
    "accepts_reference_keywords",
    "announce",
    "completion_of",
    "raise_if_ended_early",
]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "Completion": "types",
        "ModelUsage": "types",
        "UsageTotals": "types",
        "announce": "recording",
        "completion_of": "results",
        "raise_if_ended_early": "results",
    },
)
