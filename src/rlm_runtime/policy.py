"""What a run may use, in rlm-runtime's words."""

from msgspec import Struct

from rlm.errors import (
    MaxRecursionExceeded,
    MaxStepsExceeded,
    MaxSubcallsExceeded,
    MaxTokensExceeded,
    PolicyError,
)
from rlm.limits import Limits

__all__ = [
    "MaxRecursionExceeded",
    "MaxStepsExceeded",
    "MaxSubcallsExceeded",
    "MaxTokensExceeded",
    "Policy",
    "PolicyError",
]


class Policy(Struct, frozen=True):
    """A frozen value: it counts nothing itself, so every run begins with all of it.

    `max_recursion_depth`: 0 allows no sub-calls, 1 plain ones, more also child runs.
    """

    max_steps: int = 40
    max_subcalls: int = 200
    max_recursion_depth: int = 1
    max_total_tokens: int = 200_000

    def limits(self) -> Limits:
        """Return the engine's limits for a run and all its children."""
        return Limits(
            max_steps=self.max_steps,
            max_calls=self.max_subcalls if self.max_recursion_depth else 0,
            max_depth=max(1, self.max_recursion_depth),
            max_tokens=self.max_total_tokens,
        )
