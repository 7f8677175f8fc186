"""A REPL in a thread of the host, built from the worker's parts; its output is captured."""

import asyncio
import contextlib
import contextvars
import itertools
import os
import pdb  # noqa: T100 - to debug cells is what this environment is for
import queue
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn, TypeVar

from rlm.environments.inprocess.calls import DirectChannel, StartCall
from rlm.environments.inprocess.interrupts import ThreadInterrupts
from rlm.worker.finals import Finals
from rlm.worker.functions import CallFunctions, provide_names
from rlm.worker.namespace import Namespace
from rlm.worker.proxies import made_tools
from rlm.worker.reports import parts_of_done
from rlm.worker.runner import CellRunner
from rlm.worker.turns import Turns
from rlm.worker.variables import Variables

__all__ = ["Captured", "InProcessRepl", "captured", "let_go"]

_Value = TypeVar("_Value")
_numbers = itertools.count(1)


class _Runner(CellRunner):
    """Runs cells without touching what belongs to the whole process."""

    def __init__(self, number: int, *parts: Any) -> None:
        super().__init__(*parts)
        self._cell_name = f"<cell %d of session {number}>"

    def _prepare(self) -> None:
        asyncio._set_running_loop(None)  # An interrupted loop may still be registered as running.
        self._namespace.variables.update(self._hidden_names)
        self._namespace.restore()

    def _attend_to_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do nothing: interrupts are not signals here."""

    def close(self) -> None:
        """Close the event loop of cells that await."""
        if self._loop is not None:
            self._loop.close()


class InProcessRepl:
    """A thread, its namespace, and the jobs that run in it."""

    def __init__(
        self, settings: dict[str, Any], start_call: StartCall, on_breakpoint: Callable[[], None]
    ) -> None:
        number = next(_numbers)
        self.interrupts = ThreadInterrupts()
        channel: Any = DirectChannel(start_call, self.interrupts)
        turns = Turns()
        functions = CallFunctions(channel, turns)
        self._namespace = Namespace({})
        self._variables = Variables(self._namespace)
        self._finals = Finals(self._namespace.variables, self._variables, turns)
        self._finals.max_chars = settings["max_submission_chars"]
        provide_names(self._namespace, self._variables, self._finals, functions)
        self._functions = functions
        self._namespace.provide_tools({"exit": _leave, "quit": _leave, "input": _no_input})
        self.set_tools(settings["tools"])
        self._runner = _Runner(
            number, self._namespace, self.interrupts, functions.async_form, turns
        )
        self._runner.keep_output(settings["kept_output_chars"])
        self._captured = Captured(self._runner.stdout, self._runner.stderr, on_breakpoint)
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name=f"rlm-cells-{number}", daemon=True)
        self.thread.start()

    def submit(
        self,
        job: Callable[[], _Value],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
    ) -> asyncio.Future[_Value]:
        """Run a job in the thread, after the jobs submitted earlier."""
        reply: asyncio.Future[_Value] = loop.create_future()

        def settle(value: _Value) -> None:
            if not reply.done():
                reply.set_result(value)

        def work() -> None:
            value = job()
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, value, context=context)

        self._jobs.put(work)
        return reply

    def abandon(self) -> None:
        """Interrupt the running job and let the thread end when it can; it may be stuck."""
        self._jobs.put(None)
        self.interrupts.interrupt()
        let_go(self._captured)

    def _work(self) -> None:
        self.interrupts.adopt_thread()
        while (job := self._jobs.get()) is not None:
            job()
        self._runner.close()

    # Jobs.

    def execute(self, code: str) -> list[bytes]:
        """Run a cell and return the parts of its report."""
        self._finals.begin_cell(code)
        with captured(self._captured):
            outcome = self._runner.run_cell(code, self._finals.collect)
        return parts_of_done(outcome, self._runner, self._variables)

    def load(self, name: str, kind: str, chunks: Iterable[bytes]) -> str | None:
        """Bind a context; return why that failed, or None if it did not."""
        try:
            value = self._functions.loaded(kind, b"".join(chunks))
            self._namespace.load(name, self._finals.loaded(name, value))
        except (OSError, ValueError, MemoryError, RecursionError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    def set_tools(self, listed: list[dict[str, str]]) -> None:
        """Replace the tools."""
        self._namespace.set_tools(made_tools(listed, self._functions))

    def fetch(self, name: str) -> str | None:
        """Return the text of a variable, or None if there is none or it has no text."""
        if name not in self._namespace.variables:
            return None
        with captured(self._captured):
            text = self._runner.guard(
                lambda: str(self._finals.value_of(name))[: self._finals.max_chars]
            ).value
        return None if text is None else str(text)


def _leave(code: object = None) -> NoReturn:
    """Raise SystemExit; Python's own `exit` would also close the program's stdin."""
    raise SystemExit(code)


def _no_input(prompt: object = "", /) -> NoReturn:
    """Refuse input: the terminal belongs to the program, and only `breakpoint()` may use it."""
    sys.stdout.write(str(prompt))
    raise EOFError("a cell can't ask for input")


# -- output --


class Captured(NamedTuple):
    """The streams of a session's cells, and what to call when a cell is debugged."""

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
    """Send the output of this thread, and of the tasks it creates, to the session."""
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
    """Restore the streams, unless other cells need them; may be called twice."""
    with _lock:
        if session in _users:
            _users.remove(session)
            if _users:
                _install()  # The cell may have replaced it.
            else:
                vars(sys).update(_originals)


def _install() -> None:
    vars(sys).update(_STAND_INS, breakpointhook=_on_breakpoint)


def _on_breakpoint(*arguments: Any, **named: Any) -> Any:
    """Open the debugger for a cell on the real terminal, because `sys.stdout` is captured."""
    session = _current.get()
    chosen = os.environ.get("PYTHONBREAKPOINT") or "pdb.set_trace"
    if session is None or chosen != "pdb.set_trace":
        return _originals["breakpointhook"](*arguments, **named)
    session.on_breakpoint()
    debugger = pdb.Pdb(stdin=sys.__stdin__, stdout=sys.__stdout__, nosigint=True)
    debugger.set_trace(sys._getframe(1))
    return None
