"""Every error rlm raises, in one tree.

RLMError
├── ConfigError             an argument, name, key or extra is wrong or missing; nothing was sent
│   └── UnknownPriceError   a money limit on a model whose price nobody knows
├── ModelError              a model could not be reached, refused the request, or broke off
├── CallRefused             the call would break a limit; it was not sent
├── SessionError            the interpreter can't go on (a fresh session can)
│   ├── SessionDied         its process is gone
│   └── ProtocolViolation   it sent something no honest worker sends
├── PortalError             the sync door was called where it would wait for itself
└── LimitExceededError      the reference spelling's end at a limit; carries .partial_answer
    ├── BudgetExceededError
    ├── TimeoutExceededError
    ├── TokenLimitExceededError
    ├── ErrorThresholdExceededError
    └── CancellationError

What the model can repair (its code raised, its call was refused) reaches it as a result;
what it can't (the worker died, the provider is unreachable) is an exception.
"""

__all__ = [
    "BudgetExceededError",
    "CallRefused",
    "CancellationError",
    "ConfigError",
    "ErrorThresholdExceededError",
    "LimitExceededError",
    "ModelError",
    "PortalError",
    "ProtocolViolation",
    "RLMError",
    "SessionDied",
    "SessionError",
    "TimeoutExceededError",
    "TokenLimitExceededError",
    "UnknownPriceError",
]


class RLMError(Exception):
    """The root of the tree."""


class ConfigError(RLMError, ValueError):
    """Something the caller can fix before anything is sent; the text says how."""


class UnknownPriceError(ConfigError):
    """`max_cost_usd` is set, but a model that may be called has no known price."""


class ModelError(RLMError):
    """A model did not answer.

    `retryable`: the same request may succeed later. `ambiguous`: the provider may have billed it.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        ambiguous: bool = False,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.ambiguous = ambiguous
        self.retry_after_seconds = retry_after_seconds


class CallRefused(RLMError):
    """A call was not sent because it could break the limit named `limit`."""

    def __init__(self, message: str, *, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class SessionError(RLMError):
    """The session can't go on."""


class SessionDied(SessionError):
    """The worker process ended; its variables are gone."""


class ProtocolViolation(SessionError):
    """The worker sent a frame that no honest worker sends; the session was killed."""


class PortalError(RLMError):
    """A blocking call was made from the thread that would have to serve it."""


class LimitExceededError(RLMError):
    """A run ended at a limit (reference spelling); the best answer so far is `partial_answer`."""

    def __init__(self, message: str, *, partial_answer: str | None = None) -> None:
        super().__init__(message)
        self.partial_answer = partial_answer


class BudgetExceededError(LimitExceededError):
    """The money ran out."""


class TimeoutExceededError(LimitExceededError):
    """The time ran out."""


class TokenLimitExceededError(LimitExceededError):
    """The tokens, or the number of calls, ran out."""


class ErrorThresholdExceededError(LimitExceededError):
    """Too many cells failed in a row."""


class CancellationError(LimitExceededError):
    """The run was cancelled."""
