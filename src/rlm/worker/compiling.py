"""Turns the source of a cell into code whose last expression can be echoed.

Building Python's syntax tree and compiling that takes twice as long as compiling source. So a cell
is cut before its last statement if that can be done safely, and both pieces are compiled as they
are; the tree is built where a cell has to be rewritten, and where cutting it does not work out.
"""

from __future__ import annotations

import ast
import io
import linecache
import re

from . import awaiting

__all__ = ["ECHO", "Cell", "compile_cell"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

ECHO = "__rlm_echo__"
"""The hidden name of the function that shows a value."""

_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_LAST_UNINDENTED_LINE = re.compile(r"(?s:.*\n|)(?=[^\s#])")
_SURELY_A_STATEMENT = re.compile(
    r"(?:[\w.]+(?:\s*,\s*[\w.]+)*\s*(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)|"
    r"(?:for|while|if|with|try|def|class|import|from|del|assert|raise|pass)\b)[^;]*$"
)
_PROBABLY_AN_EXPRESSION = re.compile(r"[\w.]+(?:\(|[^=;]*$)")


class Cell:
    """The code of a cell: statements to run, then an expression whose value is to be echoed."""

    __slots__ = ("expression", "statements")

    def __init__(self, statements: list[CodeType], expression: CodeType | None = None) -> None:
        self.statements = statements
        self.expression = expression


def compile_cell(source: str, filename: str) -> Cell:
    """Compile a cell and remember its lines for tracebacks; SyntaxError for what is no Python."""
    lines = io.StringIO(source, newline=None).readlines()
    linecache.cache[filename] = (len(source), None, lines, filename)
    cell = None if _needs_tree(source) else _compile_in_two(source, filename)
    return cell or Cell([_compile_by_tree(source, filename)])


def _needs_tree(source: str) -> bool:
    """Whether a cell has to be rewritten, or has line ends that `_compile_in_two` does not know."""
    return (
        "await" in source
        or "async" in source
        or "__future__" in source
        or "\r" in source
        or "\f" in source
    )


def _compile_in_two(source: str, filename: str) -> Cell | None:
    """Compile what is before the last unindented line, and the rest; None if that does not work.

    If both are whole, the cut is between two statements: no bracket, string or block spans it.
    """
    match = _LAST_UNINDENTED_LINE.match(source)
    cut = match.end() if match else 0
    head = source[:cut]
    tail = "\n" * head.count("\n") + source[cut:]  # Its lines keep their numbers.
    try:
        if _SURELY_A_STATEMENT.match(source, cut):
            cell = Cell([_compile(tail, filename, "exec")])
        elif _PROBABLY_AN_EXPRESSION.match(source, cut):
            cell = Cell([], _compile(tail, filename, "eval"))
        else:
            return None
        if head:
            cell.statements.insert(0, _compile(head, filename, "exec"))
    except (SyntaxError, ValueError):
        return None  # The cut was wrong, or the tree will tell what is.
    return cell


def _compile_by_tree(source: str, filename: str) -> CodeType:
    """Compile a cell in one piece, with a call of the echo around its last expression."""
    try:
        tree = _parse(source, filename)
    except ValueError as error:  # NUL characters and lone surrogates.
        raise SyntaxError(str(error)) from None
    if "await" in source or "async" in source:
        tree = awaiting.use_async_forms(tree)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        name = ast.copy_location(ast.Name(id=ECHO, ctx=ast.Load()), last.value)
        echo = ast.Call(func=name, args=[last.value], keywords=[])
        last.value = ast.copy_location(echo, last.value)
    code: CodeType = _compile(tree, filename, "exec")
    return code


def _parse(source: str, filename: str) -> ast.Module:
    tree: ast.Module
    try:
        tree = _compile(source, filename, "exec", ast.PyCF_ONLY_AST)
    except SyntaxError:
        # A reply cut off after a line continuation is still a cell.
        if not source.rstrip().endswith("\\"):
            raise
        shorter = source.rstrip().rstrip("\\")
        tree = _compile(shorter, filename, "exec", ast.PyCF_ONLY_AST)
    return tree


def _compile(source: Any, filename: str, mode: str, more_flags: int = 0) -> Any:
    return compile(source, filename, mode, _FLAGS | more_flags, dont_inherit=True)
