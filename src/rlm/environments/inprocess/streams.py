"""Output of cells that share `sys.stdout` with the whole program, and breakpoints in them.

While a cell runs, stand-ins for both streams are installed. They pass on what is written in the
context of a cell to that cell, and everything else to where it would have gone.
"""

import contextlib
import os
import pdb  # noqa: T100 - to debug cells is what this environment is for
import sys
import threading
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any, NamedTuple

__all__ = ["Captured", "captured", "let_go"]


class Captured(NamedTuple):
    """Where the output of a session's cells goes, and who is told that one is being debugged."""

    stdout: Any
    stderr: Any
    on_breakpoint: Callable[[], None]


_current: ContextVar[Captured | None] = ContextVar("rlm_inprocess_output", default=None)
_lock = threading.Lock()
_users: list[Captured] = []
_originals: dict[str, Any] = {}


class _StandIn:
    """`sys.stdout` or `sys.stderr` while cells run."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        mine = _current.get()
        stream = _originals[self._name] if mine is None else getattr(mine, self._name)
        return getattr(stream, attribute)


_STAND_INS = {name: _StandIn(name) for name in ("stdout", "stderr")}


@contextlib.contextmanager
def captured(session: Captured) -> Generator[None, None, None]:
    """Let this thread's output, and that of tasks it makes, go to the session."""
    _current.set(session)
    with _lock:
        if not _users:
            _originals.update(
                stdout=sys.stdout, stderr=sys.stderr, breakpointhook=sys.breakpointhook
            )
        _users.append(session)
        _install()
    try:
        yield
    finally:
        let_go(session)


def let_go(session: Captured) -> None:
    """Leave the streams alone, unless other cells need them; may be called twice."""
    with _lock:
        if session in _users:
            _users.remove(session)
            if _users:
                _install()  # The cell may have put something else there.
            else:
                vars(sys).update(_originals)


def _install() -> None:
    vars(sys).update(_STAND_INS, breakpointhook=_on_breakpoint)


def _on_breakpoint(*arguments: Any, **named: Any) -> Any:
    """Open the debugger for a cell on the real terminal, where its output would not appear."""
    session = _current.get()
    chosen = os.environ.get("PYTHONBREAKPOINT") or "pdb.set_trace"
    if session is None or chosen != "pdb.set_trace":
        return _originals["breakpointhook"](*arguments, **named)
    session.on_breakpoint()
    debugger = pdb.Pdb(stdin=sys.__stdin__, stdout=sys.__stdout__, nosigint=True)
    debugger.set_trace(sys._getframe(1))
    return None
