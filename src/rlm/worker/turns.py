"""Which turn of a conversation code belongs to, so that old threads and tasks do not act in it.

The REPL outlives a turn, and so may threads and asyncio tasks that its cells started. They can
neither answer a later turn nor make calls that it would pay for, and what they print is no output
of its cells. Tasks and callbacks inherit a
context variable, threads are marked by the code that starts them, and what a thread pool executes
belongs to the code that submitted it, because its threads are used again. Code that runs in the
thread of a cell without either, such as a callback of the garbage collector, belongs to the cell.
"""

from __future__ import annotations

import functools
import sys
import threading
from contextvars import ContextVar

from .replies import CallFailed

__all__ = ["Turn", "Turns", "follow_threads", "is_left_over"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MARK = "_rlm_turn"
_EARLIER = "this thread or task was started in an earlier turn"


class Turn:
    """One run of the session; compared by identity."""

    __slots__ = ("is_first", "is_setup")

    def __init__(self, is_first: bool) -> None:
        self.is_first = is_first
        self.is_setup = False
        """Whether this was no turn, but the code that prepares the REPL for all of them."""


_turn: ContextVar[Turn | None] = ContextVar("rlm_turn", default=None)


class Turns:
    """The turns of one session, of which the last one is current."""

    def __init__(self) -> None:
        self.current = Turn(is_first=True)

    def begin(self, *, after_setup: bool = False) -> None:
        """Begin another turn, in the thread of cells."""
        self.current.is_setup = after_setup
        self.current = Turn(is_first=False)
        self.enter()
        if "concurrent.futures.thread" in sys.modules:  # Else there is no pool yet.
            _follow_pools()

    def enter(self) -> None:
        """Note that what follows in this thread belongs to the current turn."""
        _turn.set(self.current)

    def check_answer(self) -> None:
        """Raise RuntimeError unless the calling thread or task belongs to the current turn."""
        turn = _turn_here()
        if turn is self.current or (turn is None and self.current.is_first):
            return
        raise RuntimeError(f"{_EARLIER}, so it can't answer now; call FINAL in the cell itself")

    def check_call(self) -> None:
        """Raise CallFailed if the calling thread or task belongs to an earlier turn.

        A thread of unknown origin may call: libraries start some without Python's `threading`.
        So may the threads of `setup_code`, which every turn uses.
        """
        if is_left_over(self.current):
            raise CallFailed(f"{_EARLIER}, so it can make no calls now; start a new one")


def is_left_over(current: Turn) -> bool:
    """Return whether the calling thread or task belongs to a turn before the current one."""
    turn = _turn_here()
    return turn is not None and turn is not current and not turn.is_setup


def _turn_here() -> Turn | None:
    turn = _turn.get()
    return vars(threading.current_thread()).get(_MARK) if turn is None else turn


@functools.lru_cache(maxsize=None)
def follow_threads() -> None:
    """Mark each thread with the turn in which it was started, from now on."""
    start = threading.Thread.start

    @functools.wraps(start)
    def start_in_turn(thread: Any) -> None:
        if (turn := _turn_here()) is not None:
            vars(thread)[_MARK] = turn
        start(thread)

    setattr(threading.Thread, "start", start_in_turn)  # noqa: B010 (checkers take it for a type)


@functools.lru_cache(maxsize=None)
def _follow_pools() -> None:
    """Let what a pool of threads executes belong to the code that submits it, from now on."""
    from concurrent.futures import ThreadPoolExecutor

    submit: Callable[..., Any] = ThreadPoolExecutor.submit

    @functools.wraps(submit)
    def submit_in_turn(pool: Any, function: Any, /, *arguments: Any, **named: Any) -> Any:
        turn = _turn_here()
        if turn is None:
            return submit(pool, function, *arguments, **named)
        return submit(pool, _executed, turn, function, arguments, named)

    setattr(ThreadPoolExecutor, "submit", submit_in_turn)  # noqa: B010 (as above)


def _executed(turn: Turn, function: Callable[..., Any], arguments: Any, named: Any) -> Any:
    """Call a function that code of this turn submitted, in a thread of any turn."""
    token = _turn.set(turn)
    try:
        return function(*arguments, **named)
    finally:
        _turn.reset(token)
