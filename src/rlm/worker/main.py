"""Boots the worker and serves the host's requests, one after the other, on the main thread."""

from __future__ import annotations

import _sitebuiltins
import builtins
import json
import os
import random
import socket
import sys

import __main__

from . import calls, shared, wire
from .channel import Channel, ChannelClosed
from .checkpoints import Checkpoints
from .finals import Finals, Submission
from .interrupts import Interrupts
from .memory import MemoryLimit
from .namespace import Namespace
from .replies import CallFailed, FailedReply, ToolFailed
from .runner import Outcome, Runner
from .variables import Variables
from .votes import vote

__all__ = ["WorkerSession", "main", "serve"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_DONE_BYTES = wire.MAX_TO_HOST_BYTES - (1 << 20)
_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def main(fd: int, parent_pid: int = 0) -> None:
    """Serve the host at the other end of socket `fd`; with `parent_pid`, die when it dies."""
    if parent_pid:
        _die_with_parent(parent_pid)
    os.set_inheritable(fd, False)
    serve(socket.socket(fileno=fd))


def serve(
    connection: socket.socket,
    harden: Callable[[], None] | None = None,
    fork: Callable[[], int] | None = None,
    rehearse: bool = False,
) -> None:
    """Be the worker of the host at the other end, from INIT on, until the host is gone.

    Whatever belongs to one process is made here, so that a fork server can import everything.
    `harden` is called when signal handlers are in place, before anything of the host's is read.
    `fork` is how checkpoints are made, if the sandbox has them. `rehearse`: there is time, so do
    once what will have to be done quickly.
    """
    _add_site_builtins()
    sys.argv = [""]
    interrupts = Interrupts()
    interrupts.install()
    channel = Channel(connection, interrupts)
    if harden is not None:
        harden()
    if rehearse:
        _rehearse(channel, interrupts, fork)
    first = channel.next_request()
    session = WorkerSession(channel, interrupts, first.json(0), fork)
    channel.send(wire.READY, first.id, [wire.to_json({"python": sys.version.split()[0]})])
    try:
        while True:
            session.serve(channel.next_request())
    except ChannelClosed:
        os._exit(0)  # A child that user code forked came back from its cell.


def _rehearse(channel: Channel, interrupts: Interrupts, fork: Callable[[], int] | None) -> None:
    """Open a session and run a cell in it, for nobody.

    A process that was just forked shares its memory with its parent, and pays for every page when
    it first writes to it, if only to count a reference. So touch now what will be touched then.
    """
    settings = {
        "max_submission_chars": 1_000,
        "seed": 0,
        "tools": [],
        "cell_memory_bytes": None,  # A hard limit would stay.
        "kept_output_chars": 1_000,
    }
    frame = wire.Frame(wire.INIT, 0, [wire.to_json(settings)])
    session = WorkerSession(channel, interrupts, frame.json(0), fork)
    wire.encode(wire.READY, 0, [wire.to_json({"python": sys.version.split()[0]})])
    session.rehearse("x = 1\nprint(x)")


class WorkerSession:
    """Everything of one REPL, wired together from the host's INIT settings."""

    def __init__(
        self,
        channel: Channel,
        interrupts: Interrupts,
        settings: dict[str, Any],
        fork: Callable[[], int] | None,
    ) -> None:
        self._channel = channel
        self._checkpoints = Checkpoints(channel, interrupts, fork)
        self._max_text_chars: int = settings["max_submission_chars"]
        _import_all(settings.get("preload", []))
        random.seed(settings["seed"])
        self._namespace = Namespace(vars(__main__))
        self._variables = Variables(self._namespace)
        self._finals = Finals(self._namespace.variables, self._variables, self._max_text_chars)
        functions = calls.CallFunctions(channel)
        self._provide_names(functions, settings["tools"])
        self._memory = MemoryLimit(settings.get("cell_memory_bytes"))
        self._runner = Runner(
            self._namespace,
            interrupts,
            self._memory,
            settings["kept_output_chars"],
            functions.async_form,
        )
        self._loading = bytearray()
        # One for each request of the host; RESUME comes to a checkpoint only.
        self._handlers = {
            wire.CHECKPOINT: self._take_checkpoint,
            wire.EXEC: self._execute,
            wire.FETCH: self._fetch,
            wire.LOAD: self._add_chunk,
            wire.LOAD_END: self._load,
            wire.LOAD_SHARED: self._load_shared,
        }

    def serve(self, frame: wire.Frame) -> None:
        """Do what one frame asks for."""
        self._handlers[frame.type](frame)

    def _provide_names(self, functions: calls.CallFunctions, tools: list[dict[str, str]]) -> None:
        def SHOW_VARS() -> str:
            """Your variables as `name: type[length]`."""
            return self._variables.show()

        SHOW_VARS.__qualname__ = "SHOW_VARS"
        dialogues = (
            calls.llm_query,
            calls.llm_query_batched,
            calls.rlm_query,
            calls.rlm_query_batched,
            calls.llm_query_json,
            calls.map_query,
            calls.call_tool,
            calls.budget,
        )
        names = {each.__name__: functions.make(each) for each in dialogues}
        names["llm_batch"] = names["llm_query_batched"]
        types = {each.__name__: each for each in (CallFailed, FailedReply, ToolFailed)}
        self._namespace.provide({**names, **types, **self._finals.names()})
        self._namespace.provide({"vote": vote, "SHOW_VARS": SHOW_VARS})
        self._namespace.load("context", "")
        made = {t["name"]: functions.make_tool(t["name"], t["description"]) for t in tools}
        self._namespace.provide_tools(made)

    def _add_chunk(self, frame: wire.Frame) -> None:
        self._loading += frame.part(0)

    def _load(self, frame: wire.Frame) -> None:
        """Bind what the chunks amount to; the host is told if that is impossible."""
        kind = frame.text(1)
        data, self._loading = self._loading, bytearray()
        self._bind(frame, len(data), lambda: _value_of(kind, data))

    def _load_shared(self, frame: wire.Frame) -> None:
        """Bind a value that lies in memory shared by all sessions that have it."""
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
            self._namespace.load(frame.text(0), value())
        except (OSError, ValueError, MemoryError, RecursionError) as error:
            meta["error"] = f"{type(error).__name__}: {error}"
        self._memory.after_load(size_bytes)
        self._channel.send(wire.VALUE, frame.id, [wire.to_json(meta)])

    def _take_checkpoint(self, frame: wire.Frame) -> None:
        if self._checkpoints.take(frame):
            self._runner.forget_loop()

    def _execute(self, frame: wire.Frame) -> None:
        self._finals.begin_cell()
        outcome = self._runner.run_cell(frame.text(0), self._finals.collect)
        self._channel.send(wire.DONE, frame.id, self._report(outcome))

    def rehearse(self, source: str) -> None:
        """Run a cell and make a report that nobody gets."""
        self._finals.begin_cell()
        outcome = self._runner.run_cell(source, self._finals.collect)
        wire.encode(wire.DONE, 0, self._report(outcome))

    def _report(self, outcome: Outcome) -> list[bytes]:
        """The parts of DONE, as `wire.DONE_COUNTS` explains them."""
        stdout, stdout_chars = self._runner.stdout.take()
        stderr, stderr_chars = self._runner.stderr.take()
        new, changed, deleted = self._variables.changes()
        words = [word for pair in (*new.items(), *changed.items()) for word in pair]
        parts = [
            wire.DONE_COUNTS.pack(
                stdout_chars, stderr_chars, len(new), len(changed), outcome.interrupted
            ),
            b"",
            wire.to_bytes(stdout),
            wire.to_bytes(stderr),
            wire.to_bytes("\0".join(words + deleted)),  # None of them can contain a NUL.
        ]
        submission, answer_content = outcome.value or (None, None)
        if outcome.error or submission or answer_content is not None:
            texts = _fitting(submission, answer_content, _DONE_BYTES - sum(map(len, parts)))
            how = submission.how if submission else None
            meta = {"error": outcome.error, "how": how, "texts": list(texts)}
            parts[1] = wire.to_json(meta)
            parts += texts.values()
        return parts

    def _fetch(self, frame: wire.Frame) -> None:
        """Send the text of a variable; without a part if there is none or it can't be had."""
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


def _fitting(
    submission: Submission | None, answer_content: str | None, room_bytes: int
) -> dict[str, bytes]:
    """What was handed in, by name, as far as there is room for it in one frame."""
    texts = {
        "submission": submission.text if submission else None,
        "answer_content": answer_content,
        "submission_json": submission.json if submission else None,
    }
    fitting = {}
    for name, text in texts.items():
        encoded = None if text is None else wire.to_bytes(text)
        if encoded is not None and len(encoded) <= room_bytes:
            fitting[name] = encoded
            room_bytes -= len(encoded)
    return fitting


def _value_of(kind: str, data: bytearray) -> Any:
    if kind == "bytes":
        return bytes(data)
    text = data.decode("utf-8", "surrogatepass")
    return json.loads(text) if kind == "json" else text


def _import_all(modules: list[str]) -> None:
    """Import ahead of the cells; a module that is not there is the cell's ImportError later."""
    for module in modules:
        try:
            __import__(module)
        except ImportError:
            continue


def _add_site_builtins() -> None:
    """Define what `site`, which is switched off, adds to a Python: exit, quit and help."""
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, ""))
    setattr(builtins, "help", _sitebuiltins._Helper())  # noqa: B010 (unknown to type checkers)


def _die_with_parent(parent_pid: int) -> None:
    """Ask Linux for SIGKILL when the parent dies; elsewhere the closed socket has to do."""
    import ctypes

    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(0)  # It died before it could be asked.
