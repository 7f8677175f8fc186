"""Makes `await llm_query(...)` concurrent: calls in async code become calls of the async form.

`await f(x)` becomes `await async_form(f)(x)`, and so do calls handed straight to gather,
create_task and their like. `async_form` gives the async twin of our functions and every other
function as it is, so code that never meets our functions behaves as written.
"""

from __future__ import annotations

import ast

__all__ = ["ASYNC_FORM", "awaits_at_top_level", "use_async_forms"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

    Function = Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda]

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
    """Whether the cell itself, not only functions in it, is async code."""
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
    """Convert the calls in element position of an argument: itself, its items, its element."""
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
