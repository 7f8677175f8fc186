"""The reference engine's path to its errors."""

from rlm.errors import (
    BudgetExceededError,
    CancellationError,
    ErrorThresholdExceededError,
    TimeoutExceededError,
    TokenLimitExceededError,
)

__all__ = [
    "BudgetExceededError",
    "CancellationError",
    "ErrorThresholdExceededError",
    "TimeoutExceededError",
    "TokenLimitExceededError",
]
