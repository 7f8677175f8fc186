"""Which turn of a conversation code belongs to, so that old threads and tasks do not act in it.

The REPL outlives a turn, and so may threads and asyncio tasks that its cells started. They can
neither answer a later turn nor make calls that it would pay for, and what they print is no output
of its cells. Tasks and callbacks inherit a context variable. Threads are marked: by the code that
starts them, the thread of cells by each turn, and the threads of a pool, which are used again, by
the code that submits what they execute. Code may run in a context or in a thread of an earlier
turn, and belongs to the newer of both; but where an event loop runs, tasks of many turns share a
thread, so the context decides, except in the task that is the cell.
"""

from __future__ import annotations

import _thread
import functools
import itertools
import sys
import threading
from contextvars import ContextVar

from .replies import CallFailed

__all__ = ["Turn", "Turns", "follow_threads"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MARK, _RUNS_CELLS = "_rlm_turn", "_rlm_runs_cells"
_numbers = itertools.count()
_EARLIER = "this thread or task was started in an earlier turn"


class Turn:
    """One run of the session; compared by identity."""

    __slots__ = ("is_first", "is_setup", "number")

    def __init__(self, is_first: bool) -> None:
        self.number = next(_numbers)
        self.is_first = is_first
        self.is_setup = False
        """Whether this was no turn, but the code that prepares the REPL for all of them."""

    def is_over_here(self) -> bool:
        """Whether the calling thread or task belongs to a turn before this one."""
        turn = _turn_here()
        return turn is not None and turn is not self and not turn.is_setup


_turn: ContextVar[Turn | None] = ContextVar("rlm_turn", default=None)


_starting: set[object] = set()
"""A mark for each thread that does not run yet, so that `_thread._count()` leaves it out."""


class Turns:
    """The turns of one session, of which the last one is current."""

    def __init__(self) -> None:
        self.current = Turn(is_first=True)
        self.are_shared = False
        """Whether code of earlier turns may still run: in a thread, or in a task."""
        self._have_awaited = False

    def begin(self, *, after_setup: bool = False) -> None:
        """Begin another turn, in the thread of cells."""
        self.are_shared = self._have_awaited or bool(_starting) or _thread._count() > 0
        self.current.is_setup = after_setup
        self.current = Turn(is_first=False)
        self.enter()
        if "concurrent.futures.thread" in sys.modules:  # Else there is no pool yet.
            _follow_pools()

    def enter(self) -> None:
        """Note that what follows in this thread belongs to the current turn."""
        _turn.set(self.current)
        _mark_thread(self.current)
        vars(threading.current_thread())[_RUNS_CELLS] = True

    def add_cell(self, task: Any) -> None:
        """Note that a task is a cell of the current turn, in whatever context it calls functions.

        Other tasks of the event loop may be of earlier turns.
        """
        self._have_awaited = True
        setattr(task, _MARK, self.current)

    def check_answer(self) -> None:
        """Raise RuntimeError unless the calling thread or task belongs to the current turn."""
        turn = _turn_here()
        if turn is self.current or (turn is None and self.current.is_first):
            return
        raise RuntimeError(f"{_EARLIER}, so it can't answer now; call FINAL in the cell itself")

    def check_call(self) -> None:
        """Raise CallFailed if the calling thread or task belongs to an earlier turn.

        A thread of unknown origin may call: libraries written in C start some by themselves.
        So may the threads of `setup_code`, which every turn uses.
        """
        if self.current.is_over_here():
            raise CallFailed(f"{_EARLIER}, so it can make no calls now; start a new one")


def _turn_here() -> Turn | None:
    """Return the turn of the calling code, or None if that is unknown."""
    turn: Turn | None = _turn.get()
    thread = vars(threading.current_thread())
    marked: Turn | None = thread.get(_MARK)
    if marked is None or turn is marked:
        return turn
    asyncio = sys.modules.get("asyncio")
    running_loop = getattr(asyncio, "_get_running_loop", lambda: None)()
    if asyncio is not None and running_loop is not None and (turn or _RUNS_CELLS in thread):
        return getattr(asyncio.current_task(running_loop), _MARK, turn)
    return marked if turn is None else max(turn, marked, key=lambda each: each.number)


def _mark_thread(turn: Turn) -> None:
    vars(threading.current_thread())[_MARK] = turn


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
    start_new: Callable[..., int] = vars(_thread)["start_new_thread"]

    @functools.wraps(start_new)
    def start_new_in_turn(function: Any, arguments: Any, *named: Any) -> int:
        turn = _turn_here()
        is_right = callable(function) and isinstance(arguments, tuple) and len(named) <= 1
        if turn is None or not is_right or not all(isinstance(each, dict) for each in named):
            return start_new(function, arguments, *named)
        mark = object()
        _starting.add(mark)
        try:
            return start_new(_begun, (turn, mark, function, arguments, *named))
        except BaseException:
            _starting.discard(mark)
            raise

    for name in ("start_new_thread", "start_new"):
        setattr(_thread, name, start_new_in_turn)


def _begun(turn: Turn, mark: object, function: Any, arguments: Any, named: Any = None) -> None:
    """Call a function in a thread that code of this turn started without `threading`."""
    _turn.set(turn)
    _starting.discard(mark)
    function(*arguments, **(named or {}))


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
    """Call a function that code of this turn submitted, in a thread of any turn.

    The thread stays marked: next, it calls what was to be called when the function is done.
    """
    _mark_thread(turn)
    return function(*arguments, **named)
