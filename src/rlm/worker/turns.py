"""Which turn of a conversation code belongs to, so that old threads and tasks do not answer it.

The REPL outlives a turn, and so may threads and asyncio tasks that its cells started. Tasks and
callbacks inherit a context variable, and threads are marked by the code that starts them. Code that
runs in the thread of a cell without either, such as a callback of the garbage collector, belongs to
the cell.
"""

from __future__ import annotations

import functools
import threading
from contextvars import ContextVar

__all__ = ["Turn", "Turns", "follow_threads"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MARK = "_rlm_turn"


class Turn:
    """One run of the session; compared by identity."""

    __slots__ = ("is_first",)

    def __init__(self, is_first: bool) -> None:
        self.is_first = is_first


_turn: ContextVar[Turn | None] = ContextVar("rlm_turn", default=None)


class Turns:
    """The turns of one session, of which the last one is current."""

    def __init__(self) -> None:
        self.current = Turn(is_first=True)

    def begin(self) -> None:
        """Begin another turn, in the thread of cells."""
        self.current = Turn(is_first=False)
        self.enter()

    def enter(self) -> None:
        """Note that what follows in this thread belongs to the current turn."""
        _turn.set(self.current)

    def check(self) -> None:
        """Raise RuntimeError unless the calling thread or task belongs to the current turn."""
        turn = _turn_here()
        if turn is self.current or (turn is None and self.current.is_first):
            return
        raise RuntimeError(
            "this thread or task was started in an earlier turn, so it can't answer now; "
            "call FINAL in the cell itself"
        )


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
