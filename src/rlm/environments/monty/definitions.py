"""Imports, functions and classes of earlier cells: what is carried by running its source again."""

import ast

from rlm.environments.monty.cell import Cell

__all__ = ["Definitions"]

_SIMPLE = (ast.Constant, ast.Name, ast.UnaryOp, ast.Attribute)
_IN_CLASSES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.AnnAssign, ast.Assign, ast.Pass, ast.Expr)


class Definitions:
    """The latest definition of each name, as long as nothing else was bound to it."""

    def __init__(self) -> None:
        self._sources: dict[str, str] = {}

    def note(self, cell: Cell) -> None:
        """Take in a cell that ran."""
        for name in cell.bound:
            self._sources.pop(name, None)
        lines = cell.source.encode().split(b"\n")
        for statement in cell.tree.body:
            if _is_harmless(statement):
                source = _source_of(statement, lines)
                self._sources.update(dict.fromkeys(_names(statement), source))

    def sources(self) -> dict[str, str]:
        """The source of each name; several names may share one."""
        return dict(self._sources)


def _source_of(statement: ast.stmt, lines: list[bytes]) -> str:
    """All of a statement that starts its line, decorators too, and nothing of what follows it."""
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(each.lineno for each in decorators)])
    own = lines[first - 1 : statement.end_lineno]
    own[-1] = own[-1][: statement.end_col_offset]
    return b"\n".join(own).decode()


def _names(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [each.asname or each.name.partition(".")[0] for each in statement.names]
    if isinstance(statement, ast.Assign):
        return [each.id for each in statement.targets if isinstance(each, ast.Name)]
    return [str(getattr(statement, "name", ""))]


def _is_harmless(node: ast.stmt) -> bool:
    """Whether a statement only defines something: running it again does nothing else."""
    if node.col_offset:
        return False  # It shares its line with another statement.
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Lambda) and _has_simple_defaults(node.value.args)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return not node.decorator_list and _has_simple_defaults(node.args)
    if isinstance(node, ast.ClassDef):
        values = [getattr(each, "value", None) for each in node.body]
        return all(isinstance(each, _IN_CLASSES) for each in node.body) and all(
            value is None or isinstance(value, _SIMPLE) for value in values
        )
    return False


def _has_simple_defaults(arguments: ast.arguments) -> bool:
    defaults = [*arguments.defaults, *arguments.kw_defaults]
    return all(each is None or isinstance(each, _SIMPLE) for each in defaults)
