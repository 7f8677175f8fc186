"""Exceptions that end a task, raised by a program's own code although nothing ended the task.

A client or tool may raise `asyncio.CancelledError`, `GeneratorExit` or `SystemExit` by itself, by
mistake or from a library. Passed on, it would end the task that serves a cell, which then waits for
an answer that never comes, or the whole event loop.
"""

import asyncio

__all__ = ["is_failure", "named"]


EXITS = (asyncio.CancelledError, GeneratorExit, SystemExit)


def is_failure(
    error: BaseException,
    task: "asyncio.Task[object] | None",
    exits: tuple[type[BaseException], ...] = EXITS,
) -> bool:
    """Return whether an error is a failure of the code that raised it, not the end of the task.

    `task` is the one that called this code. If it was cancelled or is being closed, that must go
    on. So must KeyboardInterrupt, because Ctrl-C arrives in whatever code is running, and what is
    not among `exits`: with classes of their own, programs stop themselves.
    """
    if isinstance(error, Exception):
        return True
    if isinstance(error, KeyboardInterrupt) or not isinstance(error, exits):
        return False
    if task is None or _current_task() is not task:
        return False  # The coroutine is being closed.
    return not (isinstance(error, asyncio.CancelledError) and task.cancelling())


def named(error: BaseException) -> str:
    """Return the type of an error and its message, if it has one."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _current_task() -> "asyncio.Task[object] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # No event loop runs.
        return None
