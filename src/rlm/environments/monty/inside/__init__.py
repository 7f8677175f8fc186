"""The REPL's own names, in the subset of Python that monty has; every session is fed them first.

What stands below the marker in the files beside this one is sent as it is, so it may use only what
monty knows: no inheritance, no generators, no `globals`. Cells share one namespace with it, so all
that is not published starts with `_rlm_`. What is above the marker is for CPython and its tools.
"""

import ast
from functools import cache
from importlib.resources import files

__all__ = ["FEED_NAME", "prelude"]

FEED_NAME = "<python-input-0>"
"""What monty calls the first feed of a session, in tracebacks."""

_MARKER = "# -- sent from here --\n"
_IMPORTS = "import json as _rlm_json\nimport re as _rlm_re"
_PARTS = ("calls", "report", "finals", "views", "carrying")


@cache
def prelude() -> str:
    """The source of all of them, without what only readers and type checkers need."""
    folder = files(__name__)
    texts = [folder.joinpath(f"{name}.py").read_text("utf-8") for name in _PARTS]
    tree = ast.parse("\n".join([_IMPORTS, *(text.partition(_MARKER)[2] for text in texts)]))
    return ast.unparse(_Bare().visit(tree))


class _Bare(ast.NodeTransformer):
    """Takes out docstrings and annotations: monty reads the rest in half the time."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        value = node.value or ast.Constant(None)
        return ast.copy_location(ast.Assign(targets=[node.target], value=value), node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)
