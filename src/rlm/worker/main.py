"""Starts the worker and serves the host's requests, one after the other, in the main thread."""

from __future__ import annotations

import _sitebuiltins
import builtins
import os
import random
import socket
import sys

import __main__

from . import agent_names, bounds, files, functions, proxies, shared, wire
from .channel import Channel, ChannelClosed
from .checkpoints import Checkpoints
from .finals import Finals
from .functions import CallFunctions
from .interrupts import Interrupts
from .memory import MemoryLimit
from .namespace import Namespace
from .reports import parts_of_done
from .runner import CellRunner
from .turns import Turns
from .variables import Variables

__all__ = ["WARM_UP_REQUESTS", "Worker", "main"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9

_WARM_UP_BYTES = 1 << 16
_WARM_UP_SETTINGS = {
    "seed": 0,
    "tools": [],
    "cell_memory_bytes": None,  # A hard limit could not be lifted again.
    "kept_output_chars": 1_000,
    "max_submission_chars": 1_000,
}
_WARM_UP_CELLS = (
    # Common statements, output, an echo, an error; the last cell deletes what the others bind.
    "import sys\ndef f(n):\n    return [f'{n}']\nfor x in f(1):\n    print(x)",
    "x = 1",
    "x",
    "x / 0",
    "del f, sys, x",
)
WARM_UP_REQUESTS = (
    wire.encode(wire.INIT, 0, [wire.to_json(_WARM_UP_SETTINGS)]),
    *(wire.encode(wire.EXEC, 0, [wire.to_bytes(cell)]) for cell in _WARM_UP_CELLS),
)
"""Requests that a worker handles before it serves; answers have at most `_WARM_UP_BYTES`."""


def main(fd: int, parent_pid: int = 0) -> None:
    """Serve the host at the other end of socket `fd`; with `parent_pid`, die when it dies."""
    if parent_pid:
        _die_with_parent(parent_pid)
    os.set_inheritable(fd, False)
    Worker().serve(socket.socket(fileno=fd))


class Worker:
    """One REPL with all its parts.

    It is created before a fork, if there is one, because a forked process pays for every page it
    writes to. `serve` creates what belongs to one process, and INIT brings the settings. `fork` is
    used for checkpoints, if the sandbox has them.
    """

    def __init__(self, fork: Callable[[], int] | None = None) -> None:
        _add_site_builtins()
        sys.argv = [""]
        self._interrupts = Interrupts()
        self._channel = Channel(self._interrupts)
        self._checkpoints = Checkpoints(self._channel, self._interrupts, fork)
        self._max_text_chars = 0
        self._namespace = Namespace(vars(__main__))
        self._variables = Variables(self._namespace)
        self._turns = Turns()
        self._finals = Finals(self._namespace.variables, self._variables, self._turns)
        self._functions = CallFunctions(self._channel, self._turns)
        functions.provide_names(self._namespace, self._variables, self._finals, self._functions)
        self._memory = MemoryLimit(None)
        self._runner = self._new_runner(CellRunner)
        self._loading = bytearray()
        self._ready = wire.to_json({"python": sys.version.split()[0]})
        # One for each request of the host; only a checkpoint gets RESUME.
        self._handlers = {
            wire.CHECKPOINT: self._take_checkpoint,
            wire.EXEC: self._execute,
            wire.FETCH: self._fetch,
            wire.INIT: self._set_up,
            wire.LIST_FILES: self._list_files,
            wire.LOAD: self._add_chunk,
            wire.LOAD_END: self._load,
            wire.LOAD_SHARED: self._load_shared,
            wire.READ_FILE: self._read_file,
        }

    def serve(
        self,
        connection: socket.socket,
        harden: Callable[[], None] | None = None,
        warm_up: bool = False,
    ) -> NoReturn:
        """Serve the host at the other end, from INIT on, until it is gone.

        `harden` is called after signal handlers are installed and before anything is read. With
        `warm_up`, do everything once before that, so that it is fast later.
        """
        self._interrupts.install()
        if harden is not None:
            harden()
        if warm_up:
            self._warm_up()
        self._channel.adopt(connection)
        try:
            while True:
                self._serve_next()
        except ChannelClosed:
            os._exit(0)  # This is a child that user code forked, and its cell has ended.

    def warm_up(self) -> None:
        """Do everything once before a fork, so that sessions write to less memory."""
        self._interrupts.open_pipes()
        self._warm_up()
        self._interrupts.close_pipes()

    def _warm_up(self) -> None:
        """Run the warm-up requests, and leave no trace of them."""
        ours, host = socket.socketpair()
        self._channel.adopt(ours)
        with host:
            for request in WARM_UP_REQUESTS:
                host.sendall(request)
                self._serve_next()
                host.recv(_WARM_UP_BYTES)
        self._channel.abandon()
        self._runner.forget_cells()

    def _serve_next(self) -> None:
        """Handle the next request."""
        frame = self._channel.next_request()
        self._handlers[frame.type](frame)

    def _set_up(self, frame: wire.Frame) -> None:
        """Apply the host's settings and answer that the worker is ready."""
        settings = frame.json(0)
        _import_all(settings.get("preload", []))
        random.seed(settings["seed"])
        self._max_text_chars = self._finals.max_chars = settings["max_submission_chars"]
        if settings.get("names") == "agent":
            agent_names.provide_agent_names(self._namespace, self._functions)
        self._namespace.set_tools(proxies.made_tools(settings["tools"], self._functions))
        if settings.get("shell") == "ipython":
            self._use_ipython()
        self._memory = self._runner.memory = MemoryLimit(settings.get("cell_memory_bytes"))
        self._runner.keep_output(settings["kept_output_chars"])
        self._channel.send(wire.READY, frame.id, [self._ready])

    def _use_ipython(self) -> None:
        """Run cells as IPython does; the zygote has already loaded it."""
        from .ipython import IPythonRunner

        self._runner = self._new_runner(IPythonRunner)

    def _new_runner(self, kind: type[CellRunner]) -> CellRunner:
        return kind(self._namespace, self._interrupts, self._functions.async_form, self._turns)

    def _add_chunk(self, frame: wire.Frame) -> None:
        self._loading += frame.part(0)

    def _load(self, frame: wire.Frame) -> None:
        """Bind the value of all chunks; report to the host if that fails."""
        kind = frame.text(1)
        data, self._loading = self._loading, bytearray()
        if kind == "tools":
            self._change_tools(frame, data)
        else:
            self._bind(frame, len(data), lambda: self._functions.loaded(kind, data))

    def _change_tools(self, frame: wire.Frame, data: bytearray) -> None:
        """Replace the tools."""
        listed = functions.value_of("json", data)
        self._namespace.set_tools(proxies.made_tools(listed, self._functions))
        self._channel.send(wire.VALUE, frame.id, [wire.to_json({})])

    def _load_shared(self, frame: wire.Frame) -> None:
        """Bind a value in memory that all sessions share."""
        layout = frame.json(1)
        fd = self._channel.take_fd()
        try:
            self._bind(frame, os.lseek(fd, 0, os.SEEK_END), lambda: shared.value_of(fd, layout))
        finally:
            os.close(fd)

    def _bind(self, frame: wire.Frame, size_bytes: int, value: Callable[[], Any]) -> None:
        meta = {}
        self._memory.before_load(size_bytes)
        try:
            self._namespace.load(frame.text(0), self._finals.loaded(frame.text(0), value()))
        except (OSError, ValueError, MemoryError, RecursionError) as error:
            meta["error"] = f"{type(error).__name__}: {error}"[: bounds.MAX_MESSAGE_CHARS]
        self._memory.after_load(size_bytes)
        self._channel.send(wire.VALUE, frame.id, [wire.to_json(meta)])

    def _take_checkpoint(self, frame: wire.Frame) -> None:
        if self._checkpoints.take(frame):
            self._runner.forget_loop()

    def _execute(self, frame: wire.Frame) -> None:
        source = frame.text(0)
        self._finals.begin_cell(source)
        outcome = self._runner.run_cell(source, self._finals.collect)
        parts = parts_of_done(outcome, self._runner, self._variables)
        self._channel.send(wire.DONE, frame.id, parts)

    def _fetch(self, frame: wire.Frame) -> None:
        """Send the text of a variable; no text part if it does not exist or has no text."""
        name = frame.text(0)
        variables = self._namespace.variables
        parts = [wire.to_json({})]
        if name in variables:
            outcome = self._runner.guard(
                lambda: str(self._finals.value_of(name))[: self._max_text_chars]
            )
            if outcome.error is None:
                parts.append(wire.to_bytes(outcome.value))
        self._channel.send(wire.VALUE, frame.id, parts)

    def _list_files(self, frame: wire.Frame) -> None:
        found = self._runner.guard(lambda: files.list_files(frame.text(0))).value or []
        self._channel.send(wire.VALUE, frame.id, [wire.to_json({}), wire.to_json(found)])

    def _read_file(self, frame: wire.Frame) -> None:
        """Send a piece of a file; empty at its end, or if it is gone."""
        folder, name, offset = frame.text(0), frame.text(1), frame.json(2)
        piece = self._runner.guard(lambda: files.read_piece(folder, name, offset)).value or b""
        self._channel.send(wire.VALUE, frame.id, [wire.to_json({}), piece])


def _import_all(modules: list[str]) -> None:
    """Import modules before cells do; if one is missing, the cell gets the ImportError."""
    for module in modules:
        try:
            __import__(module)
        except ImportError:
            continue


def _add_site_builtins() -> None:
    """Define exit, quit and help, which `site` would add if it were not disabled."""
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, ""))
    setattr(builtins, "help", _sitebuiltins._Helper())  # noqa: B010 (unknown to type checkers)


def _die_with_parent(parent_pid: int) -> None:
    """Ask Linux for SIGKILL when the parent dies; on other systems the closed socket is enough."""
    import ctypes

    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(0)  # The parent died before the request.
