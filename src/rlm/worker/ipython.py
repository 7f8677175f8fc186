"""Cells of an IPython shell.

IPython rewrites a cell (magics, `?`, `!`), keeps its history and shows its value. Compiling and
running work as for every other cell: IPython's own `run_cell` catches everything, including
interrupts, prints errors instead of reporting them, and has its own event loop.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
import tokenize
from types import TracebackType

import __main__

from . import compiling, ipython_shell
from .namespace import PRELOADED
from .runner import CellRunner

__all__ = ["IPythonRunner", "prepare"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .interrupts import Interrupts
    from .namespace import Namespace
    from .turns import Turns

_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_UNREADABLE = (SyntaxError, ValueError, tokenize.TokenError)
_NUMBERED_NAMES = 100
"""For how many cells to keep `_7` and `_i7`; every cell looks through all names."""


@functools.lru_cache(maxsize=None)
def prepare() -> Any:
    """Create the shell before a process forks, so that no session spends time on it."""
    return ipython_shell.make_shell(__main__)


class IPythonRunner(CellRunner):
    """Runs cells as IPython does."""

    def __init__(
        self,
        namespace: Namespace,
        interrupts: Interrupts,
        async_form: Callable[[Any], Any],
        turns: Turns,
    ) -> None:
        super().__init__(namespace, interrupts, async_form, turns)
        self._shell = shell = prepare()
        self._core: Any = sys.modules["IPython.core.interactiveshell"]
        self._usual_transformers = list(shell.ast_transformers)
        self._hidden_names["get_ipython"] = shell.get_ipython
        history = shell.history_manager
        namespace.provide({"In": history.input_hist_parsed, "Out": history.output_hist})
        namespace.provide_tools(
            {
                "_dh": history.dir_hist,
                "_ih": history.input_hist_parsed,
                "_oh": history.output_hist,
                "get_ipython": shell.get_ipython,
            }
        )
        shell.init_user_ns = self._bind_again
        shell.loop_runner = self._run_coroutine
        shell.run_cell = self._run_nested

    def _prepare(self) -> None:
        super()._prepare()
        sys.displayhook = self._shell.displayhook
        self._shell.user_ns_hidden.update({**PRELOADED, **self._namespace.ours})  # %who omits them.

    def _bind_again(self) -> None:
        """Bind our names again after %reset has deleted everything."""
        self._namespace.variables.update(PRELOADED)
        self._namespace.provide(self._namespace.ours)
        self._namespace.restore()

    def _run(self, source: str, filename: str) -> None:
        shell, result = self._shell, self._begin(source)
        try:
            cell = self._compiled(result.info.transformed_cell, filename)
            shell.events.trigger("pre_execute")
            shell.events.trigger("pre_run_cell", result.info)
            self._execute(cell)
        except BaseException as error:
            result.error_in_exec = error
            self._forget_ipython(error)
            raise
        finally:
            self._end(result)
        if shell.shown_error is not None:
            self._forget_ipython(shell.shown_error)
            raise shell.shown_error

    def _run_nested(self, *arguments: Any, **named: Any) -> Any:
        """Replace `run_cell`, which magics call: raise interrupts again, which it catches too."""
        result = type(self._shell).run_cell(self._shell, *arguments, **named)
        if self._interrupts.count:
            raise KeyboardInterrupt
        return result

    def _begin(self, source: str) -> Any:
        """Rewrite a cell as plain Python and add it to the history."""
        shell = self._shell
        shell.shown_error = None
        try:
            transformed = shell.transform_cell(source)
        except _UNREADABLE:
            transformed = source  # The compiler will report the error.
        info = self._core.ExecutionInfo(source, True, False, True, None)
        info.transformed_cell = transformed
        result = shell.last_execution_result = self._core.ExecutionResult(info)
        result.execution_count = count = shell.execution_count
        shell.history_manager.store_inputs(count, transformed, source)
        for name in (f"_{count - _NUMBERED_NAMES}", f"_i{count - _NUMBERED_NAMES}"):
            shell.user_ns.pop(name, None)
        shell.execution_count += 1
        shell.displayhook.exec_result = result
        return result

    def _end(self, result: Any) -> None:
        """Trigger IPython's events for the end of a cell."""
        shell = self._shell
        result.error_in_exec = result.error_in_exec or shell.shown_error
        shell.last_execution_succeeded = result.success
        shell.displayhook.exec_result = None
        shell.events.trigger("post_execute")
        shell.events.trigger("post_run_cell", result)

    def _compiled(self, source: str, filename: str) -> compiling.Cell:
        """Compile as the plain shell does, unless IPython is set to show or rewrite more."""
        shell = self._shell
        shown = shell.ast_node_interactivity
        with self._interrupts:  # CPython's compiler does not survive being interrupted.
            cell = compiling.compile_cell(source, filename)
            if shown == "last_expr" and shell.ast_transformers == self._usual_transformers:
                return cell
            tree = compile(source, filename, "exec", _FLAGS | ast.PyCF_ONLY_AST, dont_inherit=True)
        tree = _with_echoes(shell.transform_ast(tree), shown)
        with self._interrupts:
            return compiling.Cell([compile(tree, filename, "exec", _FLAGS, dont_inherit=True)])

    def _echo(self, value: Any) -> None:
        self._shell.displayhook(value)

    def _forget_ipython(self, error: BaseException) -> None:
        """Leave IPython's own frames out of a traceback."""
        folder = os.path.dirname(os.path.dirname(self._core.__file__))
        kept, traceback = [], error.__traceback__
        while traceback is not None:
            if not traceback.tb_frame.f_code.co_filename.startswith(folder):
                kept.append(traceback)
            traceback = traceback.tb_next
        chain: TracebackType | None = None
        for each in reversed(kept):
            chain = TracebackType(chain, each.tb_frame, each.tb_lasti, each.tb_lineno)
        error.__traceback__ = chain


def _with_echoes(tree: ast.Module, which: str) -> ast.Module:
    """Echo expressions: all of them, only the last statement, or none."""
    last = tree.body[-1] if tree.body else None
    if which == "last_expr_or_assign" and isinstance(last, ast.Assign):
        names = [each.id for each in last.targets if isinstance(each, ast.Name)]
        tree.body += [ast.Expr(ast.Name(id=name, ctx=ast.Load())) for name in names[:1]]
    for each in {"all": tree.body, "none": []}.get(which, tree.body[-1:]):
        if isinstance(each, ast.Expr):
            echo = ast.Name(id=compiling.ECHO, ctx=ast.Load())
            each.value = ast.Call(func=echo, args=[each.value], keywords=[])
    return ast.fix_missing_locations(tree)
