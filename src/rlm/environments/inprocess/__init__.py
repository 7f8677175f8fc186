"""`environment="inprocess"`: cells run in this process. This is not a sandbox.

It is for debugging: `breakpoint()` in a cell, or in code it calls, opens pdb on the terminal, the
values in the REPL are objects of the program, and a profiler or debugger sees everything.
"""

import asyncio
import importlib.util
import logging
from collections.abc import Mapping
from typing import Any

from rlm.environments.inprocess.session import InProcessSession
from rlm.errors import ConfigError
from rlm.protocols import BaseEnvironment, Host

__all__ = ["InProcessEnvironment"]

_log = logging.getLogger(__name__)

_WARNING = (
    "environment='inprocess' is not a sandbox: model-written code runs in this process, with "
    "access to your keys, your files and your network. Use it for debugging, and 'local' for "
    "everything else"
)
_DEFAULTS = {"tools": [], "kept_output_chars": 1_000_000, "max_submission_chars": 10_000_000}
_IN_C = "a cell that waits or runs C code can't be stopped; its thread is left behind"
_ONE_PROCESS = "cells share one process, its modules, folder, variables and hash seed"
_MAIN = "the namespace is not the program's __main__, so classes made in cells can't be pickled"
_HOLDS_GIL = "C code that holds the GIL blocks the whole program while it runs"
_ENDS_PROGRAM = "anything that ends the process ends the program"
_OWN_FILES = "cells have no folder of their own; the files they write are in the program's folder"
_NO_LIMITS = "there are no limits on memory, disk or processes"


class InProcessEnvironment(BaseEnvironment):
    """Opens sessions as threads of this process; nothing is isolated."""

    name = "inprocess"
    no_sandbox = (
        "inprocess is not a sandbox, so there is nothing to attack: every attack would succeed"
    )
    lacks: Mapping[str, str] = {
        "names: the namespace is the real __main__": _MAIN,
        "snippets: pickle and copy": _MAIN,
        "cells: hashes and random numbers": _ONE_PROCESS,
        "snippets: the working folder is empty": _ONE_PROCESS,
        "interrupts: a sleep ends": _IN_C,
        "interrupts: a deadlock ends": _IN_C,
        "interrupts: a thread that is joined": _IN_C,
        "interrupts: a pool whose workers sleep": _IN_C,
        "interrupts: one interrupt caught": _IN_C,
        "interrupts: a queue that stays empty": _IN_C,
        "interrupts: a select without end": _IN_C,
        "interrupts: the __str__ of an answer": _IN_C,
    }
    harms_host: Mapping[str, str] = {
        "interrupts: a regular expression that explodes": _HOLDS_GIL,
        "interrupts: a sum in C": _HOLDS_GIL,
        "interrupts: an endless iterator in C": _HOLDS_GIL,
        "interrupts: a deque that swallows": _HOLDS_GIL,
        "interrupts: a power of a power": _HOLDS_GIL,
        "interrupts: digits of a huge number": _HOLDS_GIL,
        "recovery: close() ends a cell that spins": _HOLDS_GIL,
        "recovery: os._exit": _ENDS_PROGRAM,
        "recovery: a segmentation fault": _ENDS_PROGRAM,
        "recovery: a stack overflow in C": _ENDS_PROGRAM,
        "recovery: an abort": _ENDS_PROGRAM,
        "recovery: variables, modules and files": _OWN_FILES,
        "snippets: tempfile": _OWN_FILES,
        "snippets: files, pathlib": _OWN_FILES,
        "snippets: sqlite3 in a file": _OWN_FILES,
        "snippets: mmap and tarfile": _OWN_FILES,
        "limits: a hoard of strings": _NO_LIMITS,
        "limits: one large allocation": _NO_LIMITS,
        "limits: a full disk": _NO_LIMITS,
        "limits: too many processes": _NO_LIMITS,
    }
    """Conformance checks that must not be tried here, and why."""

    def __init__(self) -> None:
        self._sessions: set[InProcessSession] = set()
        self._has_warned = False

    @classmethod
    def problem(cls) -> str | None:
        """Return why it can't be used here, or None."""
        if importlib.util.find_spec("resource") is None:
            return "environment='inprocess' needs a Unix: Linux or macOS (WSL 2 works)"
        return None

    async def open(self, host: Host, options: dict[str, Any]) -> InProcessSession:
        """Start a thread for cells.

        `options`: tools ([{"name", "description"}]), kept_output_chars, max_submission_chars. A
        seed, a memory limit and preloaded modules are ignored: they would affect the whole program.
        """
        if (problem := self.problem()) is not None:
            raise ConfigError(problem)
        if not self._has_warned:
            self._has_warned = True
            _log.warning(_WARNING)
        session = InProcessSession(host, {**_DEFAULTS, **options})
        self._sessions.add(session)
        session.when_closed(self._sessions.discard)
        return session

    async def describe(self) -> dict[str, Any]:
        """Report that nothing is isolated, and what is missing."""
        missing = dict.fromkeys([*self.lacks.values(), *self.harms_host.values()])
        return {
            "isolation": "none: cells run in this process and can do anything it can",
            "missing": list(missing),
        }

    async def close(self) -> None:
        """Close every session that is still open."""
        await asyncio.gather(*(session.close() for session in list(self._sessions)))
