"""Compiles a cell, runs it in the namespace, and reports what happened."""

from __future__ import annotations

import ast
import builtins
import io
import linecache
import sys

from . import awaiting, tracebacks
from .capture import BoundedStream

__all__ = ["Outcome", "Runner"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import CodeType
    from typing import Any

    from .interrupts import Interrupts
    from .memory import MemoryLimit
    from .namespace import Namespace

_ECHO = "__rlm_echo__"
_ECHO_CHARS = 20_000
_UNWIND_SECONDS = 0.2
_IS_COROUTINE = 0x80  # inspect.CO_COROUTINE


class Outcome:
    """How user code ended: the value it was run for, or the error as a dict."""

    __slots__ = ("error", "interrupted", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.error: dict[str, str] | None = None
        self.interrupted = False


class Runner:
    """Runs user code: cells, and whatever else may call what the user wrote."""

    def __init__(
        self,
        namespace: Namespace,
        interrupts: Interrupts,
        memory: MemoryLimit,
        kept_output_chars: int,
        async_form: Callable[[Any], Any],
    ) -> None:
        self._namespace = namespace
        self._interrupts = interrupts
        self._memory = memory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cell_count = 0
        self._hidden_names = {awaiting.ASYNC_FORM: async_form, _ECHO: self._echo}
        self.stdout = BoundedStream(kept_output_chars)
        self.stderr = BoundedStream(kept_output_chars)

    def run_cell(self, source: str) -> Outcome:
        """Run one cell."""
        self._cell_count += 1
        filename = f"<cell {self._cell_count}>"
        self._prepare()

        def compile_and_execute() -> None:
            with self._interrupts:  # CPython's compiler does not survive being interrupted.
                code = _compile(source, filename)
            self._execute(code)

        return self.guard(compile_and_execute)

    def guard(self, work: Callable[[], Any]) -> Outcome:
        """Run user code so that nothing it raises gets past here: the border of cell execution."""
        outcome = Outcome()
        try:
            try:
                self._interrupts.begin_cell()
                with self._memory:
                    outcome.value = work()
            finally:
                outcome.interrupted = self._interrupts.count > 0
                self._interrupts.end_cell()
        except BaseException as error:
            self._interrupts.end_cell()
            outcome.error = tracebacks.describe(error)
        return outcome

    def _prepare(self) -> None:
        """Give the cell the streams, the restored names and the hidden ones, and no loop."""
        set_running_loop = getattr(sys.modules.get("asyncio"), "_set_running_loop", None)
        if set_running_loop is not None:  # An interrupt may have kept a loop from signing off.
            set_running_loop(None)
        sys.stdin = io.StringIO()
        sys.stdout, sys.stderr = self.stdout, self.stderr
        # What scripts restore after a redirection; type checkers know only the original streams.
        vars(sys).update(__stdout__=self.stdout, __stderr__=self.stderr)
        vars(builtins).update(self._hidden_names)
        self._namespace.restore()

    def _execute(self, code: CodeType) -> None:
        if code.co_flags & _IS_COROUTINE:
            self._run_coroutine(eval(code, self._namespace.variables))  # noqa: S307
        else:
            exec(code, self._namespace.variables)

    def _run_coroutine(self, cell: Any) -> None:
        """Run a cell with top-level await on the loop that all such cells share."""
        with self._interrupts:  # An import that is interrupted leaves broken modules behind.
            import asyncio
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        loop = self._loop
        asyncio.set_event_loop(loop)
        task = loop.create_task(cell)

        def cancel_if_waiting() -> bool:
            """Raising inside the loop's own code could break it, so cancel the cell there."""
            if asyncio.current_task(loop) is not None or task.done():
                return False
            task.cancel()
            loop.call_soon_threadsafe(int)  # Wakes the loop.
            return True

        self._interrupts.cancel_instead = cancel_if_waiting
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError as error:
            if self._interrupts.count:
                raise KeyboardInterrupt().with_traceback(error.__traceback__) from None
            raise
        finally:
            self._interrupts.cancel_instead = None
            self._tidy_up(loop, task)

    def _tidy_up(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        """Let an interrupted cell unwind; a loop that was interrupted twice is not used again."""
        import asyncio

        try:
            if self._interrupts.count <= 1 and not task.done():
                task.cancel()
                loop.run_until_complete(asyncio.wait([task], timeout=_UNWIND_SECONDS))
        finally:
            if self._interrupts.count > 1:
                self._loop = None
        if task.done() and not task.cancelled():
            task.exception()  # Else asyncio would log it as never retrieved.

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


def _compile(source: str, filename: str) -> CodeType:
    """Compile a cell whose last expression is echoed; SyntaxError for whatever is no Python."""
    lines = io.StringIO(source, newline=None).readlines()
    linecache.cache[filename] = (len(source), None, lines, filename)
    try:
        tree = _parse(source, filename)
    except ValueError as error:  # NUL characters and lone surrogates.
        raise SyntaxError(str(error)) from None
    if "await" in source or "async" in source:
        tree = awaiting.use_async_forms(tree)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        echo = ast.Call(func=ast.Name(id=_ECHO, ctx=ast.Load()), args=[last.value], keywords=[])
        last.value = ast.copy_location(echo, last.value)
        ast.fix_missing_locations(last)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(tree, filename, "exec", flags, dont_inherit=True)
    return code


def _parse(source: str, filename: str) -> ast.Module:
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        tree: ast.Module = compile(source, filename, "exec", flags, dont_inherit=True)
    except SyntaxError:
        # A reply cut off after a line continuation is still a cell.
        if not source.rstrip().endswith("\\"):
            raise
        shorter = source.rstrip().rstrip("\\")
        tree = compile(shorter, filename, "exec", flags, dont_inherit=True)
    return tree
