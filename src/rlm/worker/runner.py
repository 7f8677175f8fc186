"""Compiles a cell, runs it in the namespace, and keeps what happened."""

from __future__ import annotations

import builtins
import io
import linecache
import os
import sys
import traceback

from . import compiling
from .bounds import MAX_ERROR_TYPE_CHARS, MAX_MESSAGE_CHARS, MAX_TRACEBACK_CHARS
from .capture import BoundedStream, cut
from .memory import MemoryLimit
from .variables import type_name

__all__ = ["CellRunner", "Outcome", "describe"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

    from .interrupts import Interrupts
    from .namespace import Namespace
    from .turns import Turns

_ECHO_CHARS = 20_000
_UNWIND_SECONDS = 0.2
_IS_COROUTINE = 0x80  # inspect.CO_COROUTINE


_OUT_OF_CPU_TIME = {
    "type": "CpuTimeExceeded",
    "message": "this session has used up its processor time; submit what you have immediately",
}


class Outcome:
    """How user code ended: its value, or the error as a dict."""

    __slots__ = ("error", "interrupted", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.error: dict[str, str] | None = None
        self.interrupted = False


class CellRunner:
    """Runs user code: cells, and anything else that may call what the user wrote."""

    def __init__(
        self,
        namespace: Namespace,
        interrupts: Interrupts,
        async_form: Callable[[Any], Any],
        turns: Turns,
    ) -> None:
        self._namespace = namespace
        self._interrupts = interrupts
        self._turns = turns
        around = (CellRunner.guard, MemoryLimit.__enter__, MemoryLimit.__exit__)
        interrupts.around_cells = frozenset(each.__code__ for each in around)
        self.memory = MemoryLimit(None)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cell_count = 0
        self._cell_name = "<cell %d>"
        self._hidden_names = {compiling.ASYNC_FORM: async_form, compiling.ECHO: self._echo}
        self.stdout = BoundedStream(0, turns)
        self.stderr = BoundedStream(0, turns)

    def keep_output(self, chars: int) -> None:
        """Set how many characters of each stream to keep."""
        self.stdout.keep(chars)
        self.stderr.keep(chars)

    def run_cell(self, source: str, then: Callable[[], Any]) -> Outcome:
        """Run one cell, then `then` in any case; the outcome holds the value of `then`."""
        self._cell_count += 1
        filename = self._cell_name % self._cell_count
        self._prepare()
        is_over = False

        def cell_and_then() -> Any:
            nonlocal is_over
            self._run(source, filename)
            is_over = True
            return then()

        outcome = self.guard(cell_and_then)
        if not is_over:
            after = self.guard(then)
            outcome.value = after.value
            outcome.interrupted |= after.interrupted
        return outcome

    def guard(self, work: Callable[[], Any]) -> Outcome:
        """Run user code and catch everything it raises. This is the boundary of every cell."""
        outcome = Outcome()
        try:
            try:
                self._interrupts.begin_cell()
                with self.memory:
                    outcome.value = work()
            finally:
                outcome.interrupted = self._interrupts.count > 0
                self._interrupts.end_cell()
        except BaseException as error:
            self._interrupts.end_cell()
            outcome.error = describe(error)
            if self._interrupts.out_of_cpu_time and isinstance(error, KeyboardInterrupt):
                outcome.error.update(_OUT_OF_CPU_TIME)
        return outcome

    def forget_cells(self) -> None:
        """Number cells from 1 again."""
        for number in range(1, self._cell_count + 1):
            linecache.cache.pop(self._cell_name % number, None)
        self._cell_count = 0

    def forget_loop(self) -> None:
        """Drop the event loop in a copy of the process: the selector belongs to the original."""
        self._loop = None

    def _prepare(self) -> None:
        """Set up the streams, the restored and the hidden names for a cell; clear the loop."""
        set_running_loop = getattr(sys.modules.get("asyncio"), "_set_running_loop", None)
        if set_running_loop is not None:  # An interrupted loop may still be registered as running.
            set_running_loop(None)
        sys.stdin = io.StringIO()
        sys.stdout, sys.stderr = self.stdout, self.stderr
        # Scripts restore these after a redirection; type checkers know only the original streams.
        vars(sys).update(__stdout__=self.stdout, __stderr__=self.stderr)
        vars(builtins).update(self._hidden_names)
        self._namespace.restore()

    def _run(self, source: str, filename: str) -> None:
        """Compile and run a cell; another shell overrides this."""
        with self._interrupts:  # CPython's compiler does not survive being interrupted.
            cell = compiling.compile_cell(source, filename)
        self._execute(cell)

    def _execute(self, cell: compiling.Cell) -> None:
        variables = self._namespace.variables
        for code in cell.statements:
            if code.co_flags & _IS_COROUTINE:
                self._run_coroutine(eval(code, variables))  # noqa: S307
            else:
                exec(code, variables)
        if cell.expression is not None:
            self._echo(eval(cell.expression, variables))  # noqa: S307

    def _run_coroutine(self, cell: Any) -> Any:
        """Run a cell with top-level await on the loop that all such cells share."""
        with self._interrupts:  # An interrupted import leaves broken modules behind.
            import asyncio
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
            self._attend_to_signals(self._loop)
        loop = self._loop
        asyncio.set_event_loop(loop)
        task = loop.create_task(cell)
        self._turns.add_cell(task)

        def cancel_if_waiting() -> bool:
            """Cancel the cell; raising inside the loop's own code could break the loop."""
            if asyncio.current_task(loop) is not None or task.done():
                return False
            loop.call_soon_threadsafe(task.cancel)  # This also wakes the loop.
            return True

        self._interrupts.cancel_instead = cancel_if_waiting
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError as error:
            if self._interrupts.count:
                raise KeyboardInterrupt().with_traceback(error.__traceback__) from None
            raise
        finally:
            self._interrupts.cancel_instead = None
            self._tidy_up(loop, task)

    def _attend_to_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let a waiting loop notice signals."""
        loop.add_reader(self._interrupts.signal_fd, self._interrupts.drain_signals)

    def _tidy_up(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        """Let an interrupted cell unwind; drop a loop that is interrupted again."""
        import asyncio

        try:
            if self._interrupts.count <= 1 and not task.done():
                task.cancel()
                loop.run_until_complete(asyncio.wait([task], timeout=_UNWIND_SECONDS))
        finally:
            if self._interrupts.count > 1:
                self._loop = None
        if task.done() and not task.cancelled():
            task.exception()  # Otherwise asyncio would log it as never retrieved.

    def _echo(self, value: Any) -> None:
        """Show the value of a cell's last expression, as a notebook does."""
        if value is None:
            return
        if type(value) is str and len(value) > _ECHO_CHARS:
            text = repr(value[:_ECHO_CHARS])
        else:
            text = repr(value)
        if len(text) > _ECHO_CHARS:
            text = text[:_ECHO_CHARS] + " ..."
        sys.stdout.write(text + "\n")


# -- errors --

_HERE = os.path.dirname(os.path.abspath(__file__))
_FRAMES_READ = 40
_FRAMES_SHOWN = 12


def describe(error: BaseException) -> dict[str, str]:
    """Return the type, message and trimmed traceback of an error; this never raises."""
    name = type_name(error)
    try:
        message = str(error)
    except BaseException:
        message = f"<unprintable {name}>"
    try:
        text = _format(error)
    except BaseException:
        text = f"{name}: {message}"
    return {
        "type": name[:MAX_ERROR_TYPE_CHARS],
        "message": cut(message, MAX_MESSAGE_CHARS),
        "traceback": cut(text, MAX_TRACEBACK_CHARS),
    }


def _format(error: BaseException) -> str:
    report = traceback.TracebackException(
        type(error), error, error.__traceback__, limit=-_FRAMES_READ
    )
    todo: list[Any] = [report]
    while todo:
        each = todo.pop()
        shown = [frame for frame in each.stack if not frame.filename.startswith(_HERE)]
        each.stack[:] = shown[-_FRAMES_SHOWN:]
        linked = [each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ())]
        todo.extend(link for link in linked if link is not None)
    return "".join(report.format())
