"""Exceptions that end a task, raised by a program's own code although nothing ended the task.

A client or tool may raise `asyncio.CancelledError`, `GeneratorExit` or `SystemExit` by itself, by
mistake or from a library. Passed on, it would end the task that serves a cell, which then waits for
an answer that never comes, or the whole event loop.
"""

import asyncio
import functools
import signal
from types import CodeType

__all__ = ["is_failure", "named"]

EXITS = (asyncio.CancelledError, GeneratorExit, SystemExit)


def is_failure(
    error: BaseException,
    task: "asyncio.Task[object] | None",
    exits: tuple[type[BaseException], ...] = EXITS,
) -> bool:
    """Return whether an error is a failure of the code that raised it, not the end of the task.

    `task` is the one that called this code. If it was cancelled or is being closed, that must go
    on. So must what Ctrl-C or a handler of another signal raises, because signals arrive in
    whatever code is running, and what is not among `exits`: a program may stop a run by raising a
    class of its own.
    """
    if isinstance(error, Exception):
        return True
    if isinstance(error, KeyboardInterrupt) or not isinstance(error, exits):
        return False
    if task is None or _current_task() is not task:
        return False  # The coroutine is being closed.
    if isinstance(error, SystemExit) and _was_raised_by_a_signal(error):
        return False
    return not (isinstance(error, asyncio.CancelledError) and task.cancelling())


def named(error: BaseException) -> str:
    """Return the type of an error and its message, if it has one."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _was_raised_by_a_signal(error: BaseException) -> bool:
    """Return whether a handler of a signal raised an error, such as `sys.exit()` after SIGTERM."""
    handlers = {_code_of(signal.getsignal(each)) for each in signal.valid_signals()}
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code in handlers:
            return True
        frame = frame.tb_next
    return False


def _code_of(handler: object) -> CodeType | None:
    """Return the code of a function or method; None for a signal that Python does not handle."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return getattr(handler, "__code__", None)


def _current_task() -> "asyncio.Task[object] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:  # No event loop runs.
        return None
