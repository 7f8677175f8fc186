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

from . import calls, wire
from .channel import Channel, ChannelClosed
from .finals import Finals
from .interrupts import Interrupts
from .memory import MemoryLimit
from .namespace import Namespace
from .replies import CallFailed, FailedReply, ToolFailed
from .runner import Outcome, Runner
from .variables import Variables
from .votes import vote

__all__ = ["WorkerSession", "main"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DONE_BYTES = wire.MAX_TO_HOST_BYTES - (1 << 20)
_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def main(fd: int, parent_pid: int = 0) -> None:
    """Serve the host at the other end of socket `fd`; with `parent_pid`, die when it dies."""
    if parent_pid:
        _die_with_parent(parent_pid)
    _add_site_builtins()
    sys.argv = [""]
    os.set_inheritable(fd, False)
    interrupts = Interrupts()
    interrupts.install()
    channel = Channel(socket.socket(fileno=fd), interrupts)
    first = channel.next_request()
    session = WorkerSession(channel, interrupts, first.json(0))
    channel.send(wire.READY, first.id, [wire.to_json({"python": sys.version.split()[0]})])
    try:
        while True:
            session.serve(channel.next_request())
    except ChannelClosed:
        os._exit(0)  # A child that user code forked came back from its cell.


class WorkerSession:
    """Everything of one REPL, wired together from the host's INIT settings."""

    def __init__(self, channel: Channel, interrupts: Interrupts, settings: dict[str, Any]) -> None:
        self._channel = channel
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
        self._handlers = {
            wire.LOAD: self._add_chunk,
            wire.LOAD_END: self._load,
            wire.EXEC: self._execute,
            wire.FETCH: self._fetch,
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
        name, kind = frame.text(0), frame.text(1)
        data, self._loading = self._loading, bytearray()
        meta = {}
        self._memory.before_load()
        try:
            self._namespace.load(name, _value_of(kind, data))
        except (ValueError, MemoryError, RecursionError) as error:
            meta["error"] = f"{type(error).__name__}: {error}"
        del data
        self._memory.after_load()
        self._channel.send(wire.VALUE, frame.id, [wire.to_json(meta)])

    def _execute(self, frame: wire.Frame) -> None:
        self._finals.begin_cell()
        cell = self._runner.run_cell(frame.text(0))
        final = self._runner.guard(self._finals.collect)
        self._channel.send(wire.DONE, frame.id, self._report(cell, final))

    def _report(self, cell: Outcome, final: Outcome) -> list[bytes]:
        """The parts of DONE: metadata, both outputs, then the texts that the metadata names."""
        stdout, stdout_chars = self._runner.stdout.take()
        stderr, stderr_chars = self._runner.stderr.take()
        submission, answer_content = final.value or (None, None)
        meta = {
            "stdout_chars": stdout_chars,
            "stderr_chars": stderr_chars,
            "error": cell.error or final.error,
            "interrupted": cell.interrupted or final.interrupted,
            "how": submission.how if submission else None,
            **self._variables.changes(),
        }
        parts = [wire.to_bytes(stdout), wire.to_bytes(stderr)]
        texts = {
            "submission": submission.text if submission else None,
            "answer_content": answer_content,
            "submission_json": submission.json if submission else None,
        }
        room = _DONE_BYTES - sum(map(len, parts))
        meta["texts"] = sent = []
        for name, text in texts.items():
            encoded = None if text is None else wire.to_bytes(text)
            if encoded is not None and len(encoded) <= room:
                sent.append(name)
                parts.append(encoded)
                room -= len(encoded)
        return [wire.to_json(meta), *parts]

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
