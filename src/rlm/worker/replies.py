"""What calls return to a cell: replies, failures, values that can be awaited; and `vote`."""

from __future__ import annotations

__all__ = [
    "AwaitableDict",
    "AwaitableList",
    "AwaitableStr",
    "CallFailed",
    "FailedReply",
    "ToolFailed",
    "awaitable",
    "vote",
    "whole_text",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from typing import Any, ClassVar


class CallFailed(RuntimeError):
    """A model call failed or was refused; the text says why.

    `by_limit` maps a limit to the subclass to raise for it; only `runtime_names` defines any.
    """

    __module__ = "__main__"
    by_limit: ClassVar[dict[str | None, type[CallFailed]]] = {}


class ToolFailed(RuntimeError):
    """A tool failed, or there is no tool of that name; the text says why."""

    __module__ = "__main__"


class FailedReply(str):
    """Takes the place of a failed item in a batch; it reads `[call failed: reason]`."""

    __module__ = "__main__"
    failed = True
    reason: str
    limit: str | None

    def __new__(cls, reason: str, limit: str | None = None) -> FailedReply:
        reply = super().__new__(cls, f"[call failed: {reason}]")
        reply.reason = reason
        reply.limit = limit
        return reply

    def __reduce__(self) -> tuple[type[FailedReply], tuple[str, str | None]]:
        return FailedReply, (self.reason, self.limit)

    def as_error(self) -> CallFailed:
        return CallFailed.by_limit.get(self.limit, CallFailed)(self.reason)


class _Awaitable:
    """A value that is its own finished coroutine, so `await`, gather and create_task accept it."""

    def __await__(self) -> Generator[None, None, Any]:
        return self._plain()
        yield

    def _plain(self) -> Any:
        raise NotImplementedError

    def send(self, _: None) -> None:
        raise StopIteration(self._plain())

    def throw(self, *error: Any) -> None:
        raise error[0]

    def close(self) -> None:
        """Do nothing: nothing is pending."""


class AwaitableStr(_Awaitable, str):
    """A reply from the blocking form, called while an event loop was running."""

    def _plain(self) -> str:
        return str(self)


class AwaitableList(_Awaitable, list):  # type: ignore[type-arg]
    """A list of replies that can be awaited; hashable, as `asyncio.gather` requires."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def _plain(self) -> list[Any]:
        return list(self)


class AwaitableDict(_Awaitable, dict):  # type: ignore[type-arg]
    """A parsed object that can be awaited."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def _plain(self) -> dict[Any, Any]:
        return dict(self)


_AWAITABLE: dict[type, Any] = {str: AwaitableStr, list: AwaitableList, dict: AwaitableDict}


def awaitable(value: Any) -> Any:
    """Return the value in a form that can also be awaited, if its type allows."""
    form = _AWAITABLE.get(type(value))
    return value if form is None else form(value)


def vote(answers: Iterable[Any]) -> Any:
    """Return the most frequent answer, ignoring case, spacing and a final dot; first of a tie."""
    first: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for answer in answers:
        if isinstance(answer, FailedReply):
            continue
        key = " ".join(str(answer).casefold().split()).rstrip(".!").strip()
        first.setdefault(key, answer)
        counts[key] = counts.get(key, 0) + 1
    if not counts:
        raise ValueError("no answers to vote on")
    return first[max(counts, key=counts.__getitem__)]


vote.__module__ = "__main__"


def whole_text(value: Any) -> str:
    """Return a value as the text of an answer or a prompt, in full: some lists print in short."""
    return format(value) if isinstance(value, list) else str(value)
