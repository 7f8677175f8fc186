"""Exceptions that end a task, raised by a program's own code although nothing ended the task.

A client or tool may raise `asyncio.CancelledError`, `GeneratorExit` or `SystemExit` by itself, by
mistake or from a library. Passed on, it would end the task that serves a cell, which then waits for
an answer that never comes, or the whole event loop.
"""

import asyncio
from types import TracebackType

__all__ = ["OwnExit", "OwnExits"]


class OwnExit(Exception):
    """Code raised `error` by itself; as text, its type and message."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}".removesuffix(": "))
        self.error = error


class OwnExits:
    """`with OwnExits():` turns what its body raised to end the task by itself into `OwnExit`.

    If the task was cancelled or is being closed, that goes on. So does KeyboardInterrupt: Ctrl-C
    arrives in whatever code is running.
    """

    __slots__ = ("_task",)

    def __enter__(self) -> None:
        self._task = asyncio.current_task()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception | KeyboardInterrupt):
            return
        if self._task is None or _current_task() is not self._task:
            return  # The coroutine is being closed.
        if not (isinstance(error, asyncio.CancelledError) and self._task.cancelling()):
            raise OwnExit(error) from error


def _current_task() -> "asyncio.Task[object] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # No event loop runs.
        return None
