"""Names of tests, read from their files, for lists that name tests and must stay up to date."""

import ast
from functools import cache

from tests.shape.tree import ROOT


@cache
def _functions(path: str) -> frozenset[str]:
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text("utf-8"))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def exists(node: str) -> bool:
    """Whether `path::test_name` is a test of this repository; parameters are left out."""
    path, _, name = node.partition("::")
    return name.startswith("test_") and name in _functions(path)
