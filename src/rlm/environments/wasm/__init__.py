"""`environment="wasm"`: CPython in WebAssembly, for machines whose kernel can't isolate code.

The worker runs in the sandbox of the package `pyeryx`, in a child process. The sandbox has no
network, no processes, and no files but the sources of the worker and of Python. It needs no
privileges and works without Linux.
"""

import asyncio
import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

from rlm._util.distribution import install_command
from rlm.environments._frames import SessionBounds
from rlm.environments._session import WorkerSession, greeting_of
from rlm.environments.wasm.guest.memory import RESERVE_BYTES
from rlm.environments.wasm.process import ChildProcess
from rlm.errors import ConfigError, SessionDied
from rlm.protocols import BaseEnvironment, ContextSource, Host

__all__ = ["WasmEnvironment"]

_BASE_BYTES = 96 << 20
_MAX_BYTES = (1 << 32) - (1 << 16)
_REFILL_SECONDS = 0.05
_MIN_PYTHON = (3, 12)
_MAX_CONTEXT_BYTES = RESERVE_BYTES // 2
"""In memory, characters may take four times as many bytes as in the context, besides those."""

_NO_THREADS = "WebAssembly has no threads: pools run their jobs immediately, one after another"
_NO_WAITING = "without threads nothing can end such a wait, so it fails immediately"
_C_CODE = "C code, and loops that only count, can't be interrupted: the session ends"
_LEFT_OUT = "this build of Python comes without bz2, lzma, mmap, ctypes and a few others"


class WasmEnvironment(BaseEnvironment):
    """Opens sessions in WebAssembly. `warm_sessions`: how many children are kept ready."""

    name = "wasm"
    is_sandbox = True
    lacks: Mapping[str, str] = {
        "concurrency: twenty threads": _NO_THREADS,
        "concurrency: many threads": _NO_THREADS,
        "concurrency: calls are nested: a thread": _NO_THREADS,
        "concurrency: threads left behind": _NO_THREADS,
        "tools: threads": _NO_THREADS,
        "finals: threads of an earlier run": _NO_THREADS,
        "finals: threads of a later run": _NO_THREADS,
        "interrupts: a thread that is joined": _NO_THREADS,
        "interrupts: a deadlock": _NO_WAITING,
        "interrupts: a queue that stays empty": _NO_WAITING,
        "interrupts: a sum over an endless generator": _C_CODE,
        "interrupts: a regular expression that explodes": _C_CODE,
        "snippets: gzip, bz2, lzma": _LEFT_OUT,
        "snippets: mmap": _LEFT_OUT,
        "recovery: a segmentation fault": "without ctypes a cell can't access memory by address",
        "limits: one large allocation": "Python is 32-bit here: over 2 GiB raises OverflowError",
    }

    def __init__(self, *, warm_sessions: int = 1) -> None:
        self._warm_sessions = warm_sessions
        self._spares: list[ChildProcess] = []
        self._sessions: set[WorkerSession] = set()
        self._is_open = False

    @classmethod
    def problem(cls) -> str | None:
        """Return why it can't be used here."""
        if sys.version_info < _MIN_PYTHON:
            return (
                "environment='wasm' needs Python 3.12 or newer: pyeryx has no wheels for older "
                "versions"
            )
        if importlib.util.find_spec("eryx") is None:
            return f"environment='wasm' needs pyeryx: {install_command('wasm')}"
        return None

    async def open(self, host: Host, options: dict[str, Any]) -> WorkerSession:
        """Start a sandbox, or take one that is kept ready, and wait for its worker."""
        if (problem := self.problem()) is not None:
            raise ConfigError(problem)
        self._is_open = True
        guest_bytes = _guest_bytes(options.get("cell_memory_bytes"))
        spare = self._take(guest_bytes)
        try:
            session = await _connected(spare or ChildProcess(guest_bytes), host, options)
        except SessionDied:
            if spare is None:
                raise
            session = await _connected(ChildProcess(guest_bytes), host, options)
        self._sessions.add(session)
        session.when_closed(self._sessions.discard)
        asyncio.get_running_loop().call_later(_REFILL_SECONDS, self._refill, guest_bytes)
        return session

    async def prepare(self, context: ContextSource) -> None:
        """Refuse a context that the sandbox can't hold."""
        _check_size(context)

    async def describe(self) -> dict[str, Any]:
        """Return what isolates cells, and what they lack."""
        return {
            "isolation": "CPython in WebAssembly (wasmtime) in a child process: no files, no "
            "network, no processes",
            "missing": list(dict.fromkeys(self.lacks.values())),
        }

    async def close(self) -> None:
        """Close every session that is still open, and those kept ready."""
        self._is_open = False  # Children made ready from here on would never be ended.
        spares, self._spares = self._spares, []
        for spare in spares:
            await asyncio.to_thread(spare.discard)
        await asyncio.gather(*(session.close() for session in list(self._sessions)))

    def _take(self, guest_bytes: int) -> ChildProcess | None:
        for spare in self._spares:
            if spare.guest_bytes == guest_bytes:
                self._spares.remove(spare)
                return spare
        return None

    def _refill(self, guest_bytes: int) -> None:
        if self._is_open and self._sessions and len(self._spares) < self._warm_sessions:
            self._spares.append(ChildProcess(guest_bytes))


class _WasmSession(WorkerSession):
    """A session that refuses contexts that would end it."""

    async def load(self, name: str, context: ContextSource) -> None:
        """Bind a stored context to a name in the REPL."""
        _check_size(context)
        await super().load(name, context)


def _check_size(context: ContextSource) -> None:
    if context.size_bytes > _MAX_CONTEXT_BYTES:
        raise ConfigError(
            f"environment='wasm' accepts contexts of up to {_MAX_CONTEXT_BYTES >> 20} MiB, but "
            f"this one has {context.size_bytes / (1 << 20):,.0f} MiB: use environment='docker' or "
            "Linux"
        )


async def _connected(process: ChildProcess, host: Host, options: dict[str, Any]) -> WorkerSession:
    """Shake hands with a guest; contexts are sent as bytes, since descriptors can't be."""
    return await _WasmSession.connect(
        process.connection,
        host,
        process,
        greeting_of(options),
        sends_fds=False,
        bounds=SessionBounds.of(options),
    )


def _guest_bytes(allowance_bytes: int | None) -> int:
    if allowance_bytes is None:
        return _MAX_BYTES
    return min(_MAX_BYTES, _BASE_BYTES + allowance_bytes + RESERVE_BYTES)
