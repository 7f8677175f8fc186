"""Turns the source of a cell into code whose last expression can be echoed.

Building Python's syntax tree and compiling that takes twice as long as compiling source. So a cell
is cut before its last statement if that can be done safely, and both pieces are compiled as they
are. The tree is built only if a cell has to be rewritten, or if cutting it fails.

Cells with `await` are rewritten so that `await llm_query(...)` runs concurrently: `await f(x)`
becomes `await async_form(f)(x)`, and so do calls passed directly to gather, create_task and the
like. `async_form` returns the async twin of our functions and every other function unchanged, so
code that never uses our functions behaves as written.
"""

from __future__ import annotations

import ast
import io
import linecache
import re

__all__ = ["ASYNC_FORM", "ECHO", "Cell", "awaits_at_top_level", "compile_cell", "use_async_forms"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, Union

    Function = Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda]

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
    """The code of a cell: statements, then an expression whose value is echoed."""

    __slots__ = ("expression", "statements")

    def __init__(self, statements: list[CodeType], expression: CodeType | None = None) -> None:
        self.statements = statements
        self.expression = expression


def compile_cell(source: str, filename: str) -> Cell:
    """Compile a cell and store its lines for tracebacks; SyntaxError if it is invalid."""
    lines = io.StringIO(source, newline=None).readlines()
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"  # Every line has one in Python's own cache: carets rely on it.
    linecache.cache[filename] = (len(source), None, lines, filename)
    cell = None if _needs_tree(source) else _compile_in_two(source, filename)
    return cell or Cell([_compile_by_tree(source, filename)])


def _needs_tree(source: str) -> bool:
    """Return whether a cell has to be rewritten, or has unusual line ends."""
    return (
        "await" in source
        or "async" in source
        or "__future__" in source
        or "\r" in source
        or "\f" in source
    )


def _compile_in_two(source: str, filename: str) -> Cell | None:
    """Compile what precedes the last unindented line, and the rest; return None if that fails.

    If both compile, the cut is between two statements: no bracket, string or block spans it.
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
        return None  # The cut was wrong, or the whole cell is.
    return cell


def _compile_by_tree(source: str, filename: str) -> CodeType:
    """Compile a cell in one piece, with a call to the echo around its last expression."""
    try:
        tree = _parse(source, filename)
    except ValueError as error:  # NUL characters and lone surrogates.
        raise SyntaxError(str(error)) from None
    if "await" in source or "async" in source:
        tree = use_async_forms(tree)
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


# -- calls in async code --

ASYNC_FORM = "__rlm_async_form__"

_TAKE_AWAITABLES = frozenset(
    {"gather", "create_task", "ensure_future", "wait_for", "wait", "as_completed", "shield"}
)
_AWAITABLE_KEYWORDS = frozenset({"coro", "fut", "fs", "aws", "arg", "coro_or_future"})


def use_async_forms(tree: ast.Module) -> ast.Module:
    """Rewrite a cell in place and return it."""
    rewritten = _AsyncForms(awaits_at_top_level(tree)).visit(tree)
    ast.fix_missing_locations(rewritten)
    return tree


def awaits_at_top_level(tree: ast.Module) -> bool:
    """Return whether the cell itself, not only a function in it, is async code."""
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith)):
            return True
        if isinstance(node, ast.comprehension) and node.is_async:
            return True
        if not isinstance(node, scopes):
            todo.extend(ast.iter_child_nodes(node))
    return False


class _AsyncForms(ast.NodeTransformer):
    def __init__(self, is_async: bool) -> None:
        self._is_async = is_async

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._enter(node, False)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._enter(node, True)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._enter(node, False)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer, self._is_async = self._is_async, False
        self.generic_visit(node)
        self._is_async = outer
        return node

    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        node.value = _converted(node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if self._is_async and _name_of(node.func) in _TAKE_AWAITABLES:
            node.args = [_converted(argument) for argument in node.args]
            for keyword in node.keywords:
                if keyword.arg in _AWAITABLE_KEYWORDS:
                    keyword.value = _converted(keyword.value)
        return node

    def _enter(self, node: Function, is_async: bool) -> ast.AST:
        """Visit a function: its body is a new scope, its defaults belong to the outer one."""
        node.args = self.visit(node.args)
        if not isinstance(node, ast.Lambda):
            node.decorator_list = [self.visit(each) for each in node.decorator_list]
        outer, self._is_async = self._is_async, is_async
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            node.body = [self.visit(each) for each in node.body]
        self._is_async = outer
        return node


def _converted(node: Any) -> Any:
    """Convert an argument if it is a call, or the calls among its items, or its element."""
    if isinstance(node, ast.Call):
        if not _is_converted(node):
            name = ast.Name(id=ASYNC_FORM, ctx=ast.Load())
            node.func = ast.copy_location(ast.Call(func=name, args=[node.func], keywords=[]), node)
    elif isinstance(node, ast.Starred):
        node.value = _converted(node.value)
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        node.elts = [_converted(element) for element in node.elts]
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
        node.elt = _converted(node.elt)
    elif isinstance(node, ast.IfExp):
        node.body, node.orelse = _converted(node.body), _converted(node.orelse)
    return node


def _is_converted(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Call) and _name_of(node.func.func) == ASYNC_FORM


def _name_of(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None
