"""Every error rlm raises, in one tree.

RLMError
├── ConfigError             an argument, name, key or extra is wrong or missing; nothing was sent
│   ├── UnknownPriceError   a money limit on a model whose price is unknown
│   └── RLMEnforcementError an option would weaken an enforced agent
├── ModelError              a model could not be reached, refused the request, or broke off
├── CallRefused             the call would break a limit; it was not sent
├── NoAnswerError           strict=True, and the run ended without an answer; carries .result
├── ToolError               a tool failed or was called wrongly; the model sees how
├── SessionError            the interpreter can't continue (a new session can)
│   ├── SessionDied         its process is gone
│   ├── SessionRestored     its process was lost; it continues from a checkpoint
│   └── ProtocolViolation   it sent something no honest worker sends
├── PortalError             a blocking call came from the thread that serves it
└── LimitExceededError      the reference spelling's end at a limit; carries .partial_answer
    ├── BudgetExceededError
    ├── TimeoutExceededError
    ├── TokenLimitExceededError
    ├── ErrorThresholdExceededError
    ├── CancellationError
    └── PolicyError         the same in rlm_runtime; carries .trace too
        ├── MaxStepsExceeded
        ├── MaxSubcallsExceeded
        ├── MaxRecursionExceeded
        └── MaxTokensExceeded

What the model can repair (its code raised, its call was refused) is returned to it as a result;
what it can't (the worker died, the provider is unreachable) is an exception.
"""

from typing import Any

__all__ = [
    "BudgetExceededError",
    "CallRefused",
    "CancellationError",
    "ConfigError",
    "ErrorThresholdExceededError",
    "LimitExceededError",
    "MaxRecursionExceeded",
    "MaxStepsExceeded",
    "MaxSubcallsExceeded",
    "MaxTokensExceeded",
    "ModelError",
    "NoAnswerError",
    "PolicyError",
    "PortalError",
    "ProtocolViolation",
    "RLMEnforcementError",
    "RLMError",
    "SessionDied",
    "SessionError",
    "SessionRestored",
    "TimeoutExceededError",
    "TokenLimitExceededError",
    "ToolError",
    "UnknownPriceError",
]

OVERLOADED_STATUSES = frozenset({408, 429, 503, 504, 529})
"""Status codes for too many requests, missing capacity and timeouts on the server."""


class RLMError(Exception):
    """The root of the tree. Every error in it can be copied and pickled, with its attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Restore it from its final `args`: those of its constructor may be others."""
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[RLMError], args: tuple[Any, ...]) -> RLMError:
    error: RLMError = kind.__new__(kind, *args)
    return error


class ConfigError(RLMError, ValueError):
    """An error that the caller can fix, found before anything is sent; the message says how."""


class UnknownPriceError(ConfigError):
    """`max_cost_usd` is set, but a model that may be called has no known price."""


class RLMEnforcementError(ConfigError):
    """The request would switch off what `create_enforced_agent` guarantees."""


class ModelError(RLMError):
    """A model did not answer.

    `retryable`: the same request may succeed later. `ambiguous`: the provider may have billed it.
    `timed_out`: no answer arrived in time.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        ambiguous: bool = False,
        retry_after_seconds: float | None = None,
        timed_out: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.ambiguous = ambiguous
        self.retry_after_seconds = retry_after_seconds
        self.timed_out = timed_out

    @property
    def overloaded(self) -> bool:
        """Whether the server is overloaded, so that fewer concurrent requests may help."""
        return self.timed_out or self.status in OVERLOADED_STATUSES


class CallRefused(RLMError):
    """A call was not sent because it could break the limit named `limit`."""

    def __init__(self, message: str, *, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class ToolError(RLMError):
    """A tool failed, or was called with wrong arguments; the message is written for the model."""


class NoAnswerError(RLMError):
    """A run with `strict=True` ended without an answer; `result` says how."""

    def __init__(self, message: str, *, result: Any) -> None:
        super().__init__(message)
        self.result = result


class SessionError(RLMError):
    """The session can't continue."""


class SessionDied(SessionError):
    """The worker process ended; its variables are gone."""


class SessionRestored(SessionError):
    """The worker was lost in a cell, but the session continues from its last checkpoint.

    `lost_variables`: what cells before this one had made or changed since that checkpoint.
    """

    def __init__(self, message: str, *, lost_variables: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.lost_variables = lost_variables


class ProtocolViolation(SessionError):
    """The worker sent a frame that no honest worker sends; the session was killed."""


class PortalError(RLMError):
    """A blocking call came from the thread that would have to serve it."""


class LimitExceededError(RLMError):
    """A run ended at a limit (reference spelling); the best answer so far is `partial_answer`."""

    def __init__(self, message: str = "", *, partial_answer: str | None = None) -> None:
        super().__init__(message)
        self.partial_answer = partial_answer


class BudgetExceededError(LimitExceededError):
    """The money limit was reached: `spent` of `budget` US dollars."""

    def __init__(
        self,
        spent: float | None = None,
        budget: float | None = None,
        message: str | None = None,
        *,
        partial_answer: str | None = None,
    ) -> None:
        text = message or f"${spent or 0:.6f} of ${budget or 0:.6f} is spent"
        super().__init__(text, partial_answer=partial_answer)
        self.spent = spent
        self.budget = budget


class TimeoutExceededError(LimitExceededError):
    """The time limit was reached: `elapsed` of `timeout` seconds."""

    def __init__(
        self,
        elapsed: float | None = None,
        timeout: float | None = None,
        partial_answer: str | None = None,
        message: str | None = None,
    ) -> None:
        text = message or f"{elapsed or 0:.1f} of {timeout or 0:.1f} seconds have passed"
        super().__init__(text, partial_answer=partial_answer)
        self.elapsed = elapsed
        self.timeout = timeout


class TokenLimitExceededError(LimitExceededError):
    """The token limit was reached: `tokens_used` of `token_limit`."""

    def __init__(
        self,
        tokens_used: int | None = None,
        token_limit: int | None = None,
        partial_answer: str | None = None,
        message: str | None = None,
    ) -> None:
        text = message or f"{tokens_used or 0:,} of {token_limit or 0:,} tokens are used"
        super().__init__(text, partial_answer=partial_answer)
        self.tokens_used = tokens_used
        self.token_limit = token_limit


class ErrorThresholdExceededError(LimitExceededError):
    """Too many cells failed in a row: `error_count` of `threshold`."""

    def __init__(
        self,
        error_count: int | None = None,
        threshold: int | None = None,
        last_error: str | None = None,
        partial_answer: str | None = None,
        message: str | None = None,
    ) -> None:
        text = message or f"{error_count or 0} cells failed in a row, {threshold or 0} may"
        super().__init__(text, partial_answer=partial_answer)
        self.error_count = error_count
        self.threshold = threshold
        self.last_error = last_error


class CancellationError(LimitExceededError):
    """The run was cancelled."""

    def __init__(self, partial_answer: str | None = None, message: str | None = None) -> None:
        super().__init__(message or "the run was cancelled", partial_answer=partial_answer)


class PolicyError(LimitExceededError, RuntimeError):
    """A run of `rlm_runtime` ended at a limit; `trace` records what it did until then."""

    limit = ""

    def __init__(
        self, message: str = "", *, partial_answer: str | None = None, trace: Any = None
    ) -> None:
        super().__init__(message, partial_answer=partial_answer)
        self.trace = trace


class MaxStepsExceeded(PolicyError):
    """`max_steps` is used up."""

    limit = "steps"


class MaxSubcallsExceeded(PolicyError):
    """`max_subcalls` is used up."""

    limit = "calls"


class MaxRecursionExceeded(PolicyError):
    """A child run would be deeper than `max_recursion_depth`."""

    limit = "depth"


class MaxTokensExceeded(PolicyError):
    """The next request could use more than is left of `max_total_tokens`."""

    limit = "tokens"
