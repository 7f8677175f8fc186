"""Values on their way between Python and monty: what can't cross is said, never changed."""

from typing import Any

from rlm.text import sendable
from rlm.worker.replies import FailedReply

__all__ = ["as_raised", "received", "sent"]

_SAME: tuple[type[Exception], ...] = (
    *(TypeError, ValueError, NameError, KeyError, IndexError, OverflowError, MemoryError),
    *(ModuleNotFoundError, PermissionError),
)
_LEAVES = (str, bytes, bool, int, float, complex, type(None))


def received(value: Any) -> Any:
    """What a cell handed over, as plain Python; TypeError for what is not plain data."""
    if isinstance(value, _LEAVES):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        items = [received(item) for item in value]
        return items if isinstance(value, list) else type(value)(items)
    if isinstance(value, dict):
        return {received(key): received(item) for key, item in value.items()}
    if getattr(value, "name", None) == "FailedReply":
        return FailedReply(str(value.attributes.get("reason", "")))
    raise TypeError(f"only plain data can be handed over, not {type(value).__name__}")


def sent(value: Any) -> Any:
    """What an answer becomes in monty, whose texts have no lone surrogates."""
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, list):
        return [sent(item) for item in value]
    if isinstance(value, dict):
        return {sent(key): sent(item) for key, item in value.items()}
    return value


def as_raised(error: BaseException) -> Exception:
    """An error of the host's side in a type that monty knows; all others are a RuntimeError."""
    text = sendable(str(error.args[0]) if error.args else "")
    kind = next((each for each in _SAME if isinstance(error, each)), RuntimeError)
    return kind(text)
