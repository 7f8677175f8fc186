"""No package reaches into the private attributes of another package's classes."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.shape.test_layers import unit_of
from tests.shape.tree import ONE_PROCESS, SOURCE, Module, load_modules, nodes_of

pytestmark = ONE_PROCESS


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined(tree: ast.Module) -> Iterator[str]:
    """The private names that a module defines: functions, classes, variables, attributes."""
    for node in nodes_of(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            own = isinstance(node, ast.Name) or _is_self(node.value)
            if own:
                yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def used(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The private attributes of other objects that a module uses."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not _is_self(node.value):
            yield node.attr, node.lineno


def complaints(modules: dict[str, Module]) -> list[str]:
    owners: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for name in filter(is_private, defined(module.tree)):
            owners[name].add(unit_of(module.name))
    return [
        f"{module.name}:{line} uses {name}, which is private to {', '.join(sorted(owners[name]))}"
        for module in modules.values()
        for name, line in used(module.tree)
        if owners[name] and unit_of(module.name) not in owners[name]
    ]


def test_private_attributes_are_used_only_in_their_own_package() -> None:
    assert complaints(load_modules(SOURCE)) == []


def test_the_checker_finds_an_access_across_packages() -> None:
    modules = load_modules(SOURCE)
    runner = modules["rlm.wiring.runner"]
    spy = ast.parse("async def go(rlm):\n    return rlm.runner._running, self._running")
    server = modules["rlm.server.runs"]._replace(tree=spy)
    found = complaints({runner.name: runner, server.name: server})
    assert [each.partition(" uses ")[2] for each in found] == [
        "_running, which is private to wiring"
    ]
