"""One REPL in a thread of the host, made of the worker's own parts."""

import asyncio
import contextvars
import itertools
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from rlm.environments.inprocess.channel import DirectChannel, StartCall
from rlm.environments.inprocess.interrupts import ThreadInterrupts
from rlm.environments.inprocess.streams import Captured, captured, let_go
from rlm.worker import repl as repl_names
from rlm.worker import reports
from rlm.worker.finals import Finals
from rlm.worker.functions import CallFunctions
from rlm.worker.namespace import Namespace
from rlm.worker.runner import Runner
from rlm.worker.variables import Variables

__all__ = ["InProcessRepl"]

_Value = TypeVar("_Value")
_numbers = itertools.count(1)


class _Runner(Runner):
    """Runs cells without touching what belongs to the whole process."""

    def __init__(self, number: int, *parts: Any) -> None:
        super().__init__(*parts)
        self._cell_name = f"<cell %d of session {number}>"

    def _prepare(self) -> None:
        asyncio._set_running_loop(None)  # An interrupt may have kept a loop from signing off.
        self._namespace.variables.update(self._hidden_names)
        self._namespace.restore()

    def _attend_to_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        """Interrupts are no signals here."""

    def close(self) -> None:
        """Be done with the event loop of cells that await."""
        if self._loop is not None:
            self._loop.close()


class InProcessRepl:
    """The thread, the namespace, and what can be done with them; each is done on that thread."""

    def __init__(
        self, settings: dict[str, Any], start_call: StartCall, on_breakpoint: Callable[[], None]
    ) -> None:
        number = next(_numbers)
        self.interrupts = ThreadInterrupts()
        channel: Any = DirectChannel(start_call, self.interrupts)
        functions = CallFunctions(channel)
        self._namespace = Namespace({})
        self._variables = Variables(self._namespace)
        self._finals = Finals(self._namespace.variables, self._variables)
        self._finals.max_chars = settings["max_submission_chars"]
        repl_names.provide_names(self._namespace, self._variables, self._finals, functions)
        self._functions = functions
        self._namespace.provide_tools({"exit": _leave, "quit": _leave, "input": _no_input})
        self.set_tools(settings["tools"])
        self._runner = _Runner(number, self._namespace, self.interrupts, functions.async_form)
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
        """Have something done on the thread, after what was submitted before."""
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
        """Stop what goes on, and let the thread end when it can; what is stuck stays stuck."""
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
        """Run a cell; the parts of the report about it."""
        self._finals.begin_cell()
        with captured(self._captured):
            outcome = self._runner.run_cell(code, self._finals.collect)
        return reports.parts_of_done(outcome, self._runner, self._variables)

    def load(self, name: str, kind: str, chunks: Iterable[bytes]) -> str | None:
        """Bind a context; why that could not be done, or None."""
        try:
            self._namespace.load(name, repl_names.value_of(kind, b"".join(chunks)))
        except (OSError, ValueError, MemoryError, RecursionError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    def set_tools(self, listed: list[dict[str, str]]) -> None:
        """From now on there are these tools, and no others."""
        self._namespace.set_tools(repl_names.made_tools(listed, self._functions))

    def fetch(self, name: str) -> str | None:
        """The text of a variable; None if there is none or it has no text."""
        if name not in self._namespace.variables:
            return None
        with captured(self._captured):
            text = self._runner.guard(
                lambda: str(self._finals.value_of(name))[: self._finals.max_chars]
            ).value
        return None if text is None else str(text)


def _leave(code: object = None) -> NoReturn:
    """Python's own would close the program's stdin too."""
    raise SystemExit(code)


def _no_input(prompt: object = "", /) -> NoReturn:
    """The terminal is the program's, not the cell's; `breakpoint()` may use it."""
    sys.stdout.write(str(prompt))
    raise EOFError("a cell can't ask for input")
