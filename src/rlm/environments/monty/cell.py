"""A cell, read before it runs: whether it is Python at all, what it binds, and how it is fed.

CPython's own compiler has the first word, so that what is no Python is told in the usual words and
what monty would let pass (a `return` at top level) is refused.
"""

import ast
import warnings
from typing import NamedTuple

from rlm.results import CellError
from rlm.worker import awaiting
from rlm.worker.tracebacks import describe

__all__ = ["ASYNC_PREFIX", "ECHO_LINE", "Cell", "NotPython", "checked_cell"]

ASYNC_PREFIX = "_rlm_async_"
"""What stands before the names of functions that give something to be awaited."""

ECHO_LINE = "_rlm_echo(("
_ECHO_END = b"\n))"
_REPORT = b"\n_rlm_report(locals())"
_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class NotPython(Exception):
    """The source is no Python; `error` is what the model is told."""

    def __init__(self, error: CellError) -> None:
        super().__init__(error.message)
        self.error = error


class Cell(NamedTuple):
    """`fed` is the source with the echo and the report in it; `bound` are all names it may bind."""

    source: str
    tree: ast.Module
    fed: str
    bound: tuple[str, ...]
    loaded: frozenset[str]

    @property
    def echo_line(self) -> int:
        """The line before which one was put in; a number past the end if none was."""
        last = self.tree.body[-1] if self.tree.body else None
        return last.lineno if isinstance(last, ast.Expr) else len(self.source) + 2


class _Edit(NamedTuple):
    """Put `text` in the place of what is between two offsets in bytes."""

    start: int
    end: int
    text: bytes


def checked_cell(source: str, name: str, functions: frozenset[str]) -> Cell:
    """Parse a cell; `functions` are those of ours that can be awaited."""
    try:
        return _read(source, name, functions)
    except SyntaxError as error:
        problem: SyntaxError = error
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        problem = SyntaxError(str(error) or "the cell is nested too deeply")
    raise NotPython(CellError(**describe(problem.with_traceback(None)))) from None


def _read(source: str, name: str, functions: frozenset[str]) -> Cell:
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    try:
        tree = _parsed(source, name)
    except SyntaxError:
        if not source.rstrip().endswith("\\"):
            raise
        source = source.rstrip().rstrip("\\")
        tree = _parsed(source, name)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    loaded = frozenset(node.id for node in names if isinstance(node.ctx, ast.Load))
    return Cell(source, tree, _fed(source, tree, functions), tuple(_bound(tree)), loaded)


def _parsed(source: str, name: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = compile(source, name, "exec", _FLAGS | ast.PyCF_ONLY_AST, dont_inherit=True)
        compile(tree, name, "exec", _FLAGS, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    return tree


def _bound(tree: ast.Module) -> dict[str, None]:
    """Every name that is bound anywhere, in the order of the source as far as it goes."""
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found[node.id] = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = None
        elif isinstance(node, ast.alias):
            found[node.asname or node.name.partition(".")[0]] = None
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found[node.name] = None
    return found


def _fed(source: str, tree: ast.Module, functions: frozenset[str]) -> str:
    data = source.encode()
    starts = [0]
    for line in data.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    edits = [*_async_edits(source, starts, functions), *_echo_edits(data, tree, starts)]
    for edit in sorted(edits, reverse=True):
        data = data[: edit.start] + edit.text + data[edit.end :]
    return (data + _REPORT).decode()


def _async_edits(source: str, starts: list[int], functions: frozenset[str]) -> list[_Edit]:
    """Where a call is awaited, or handed to gather, the function's async form is meant."""
    if "await" not in source and "async" not in source:
        return []
    tree = awaiting.use_async_forms(_parsed(source, "<cell>"))
    edits = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            meant = node.args[0] if node.func.id == awaiting.ASYNC_FORM else None
            if isinstance(meant, ast.Name) and meant.id in functions:
                start = starts[meant.lineno - 1] + meant.col_offset
                edits.append(_Edit(start, start, ASYNC_PREFIX.encode()))
    return edits


def _echo_edits(data: bytes, tree: ast.Module, starts: list[int]) -> list[_Edit]:
    """Around the last expression, on lines of their own: tracebacks show the line as written."""
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        return []
    start = starts[last.lineno - 1] + last.col_offset
    end = starts[(last.end_lineno or last.lineno) - 1] + (last.end_col_offset or 0)
    line_end = data.find(b"\n", end)
    line_end = len(data) if line_end < 0 else line_end
    rest = data[end:line_end].lstrip()
    cut_from = end if rest.startswith(b";") else line_end
    return [
        _Edit(start, start, f"{ECHO_LINE}\n".encode()),
        _Edit(cut_from, line_end, _ECHO_END),
    ]
