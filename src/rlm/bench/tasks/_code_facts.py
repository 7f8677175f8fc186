"""What modules say when they are parsed: who is called, who raises what, what is derived."""

import ast
import threading
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rlm.bench.tasks._code_tree import Module, Tree

__all__ = ["Facts", "calls_of", "facts_of"]

_parsing = threading.Lock()
"""`catch_warnings` is for one thread at a time, and samples are made in several."""


@dataclass
class Facts:
    """Of some modules of a tree."""

    functions: dict[str, set[str]] = field(default_factory=dict)
    """`path:name` of a function → the exceptions that its own statements raise."""

    mentions: dict[str, str] = field(default_factory=dict)
    """`path:name` of a function → its lines, for what it only mentions."""

    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    called: Counter[str] = field(default_factory=Counter)
    doubled: set[str] = field(default_factory=set)

    def ancestors(self, name: str) -> set[str] | None:
        """All classes that this one is derived from; None if one of them is not known here."""
        found: set[str] = set()
        ahead = list(self.classes[name])
        while ahead:
            base = ahead.pop()
            if base not in self.classes or base in self.doubled:
                return None
            if base not in found:
                found.add(base)
                ahead += self.classes[base]
        return found


def facts_of(modules: Iterable[Module]) -> Facts:
    """Parse all of these; what is no Python of today is passed over."""
    facts = Facts()
    for module in modules:
        if (tree := _parsed(module.source)) is not None:
            _add_functions(facts, module, tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    _add_class(facts, node)
                elif isinstance(node, ast.Call) and (name := _name_of(node.func)):
                    facts.called[name] += 1
    return facts


def calls_of(tree: Tree, name: str) -> int:
    """Call expressions in the whole tree that call something of this name.

    A module that does not hold the name need not be parsed: that is what makes this quick.
    """
    count = 0
    for number in range(len(tree)):
        source = tree.module(number).source
        parsed = _parsed(source) if name in source else None
        if parsed is not None:
            count += sum(
                isinstance(node, ast.Call) and _name_of(node.func) == name
                for node in ast.walk(parsed)
            )
    return count


def _add_functions(facts: Facts, module: Module, tree: ast.Module) -> None:
    lines = module.source.split("\n")
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            label = f"{module.path}:{node.name}"
            facts.functions[label] = set(_raised(node))
            facts.mentions[label] = "\n".join(lines[node.lineno - 1 : node.end_lineno])


def _raised(node: ast.AST) -> Iterable[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Raise) and child.exc is not None:
            raised = child.exc.func if isinstance(child.exc, ast.Call) else child.exc
            if name := _name_of(raised):
                yield name


def _add_class(facts: Facts, node: ast.ClassDef) -> None:
    bases = tuple(_name_of(base) or "?" for base in node.bases)
    if node.name in facts.classes:
        facts.doubled.add(node.name)
    facts.classes[node.name] = bases


def _name_of(node: ast.expr) -> str:
    """`f` of `f` and of `x.f`."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _parsed(source: str) -> ast.Module | None:
    with _parsing, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of somebody's escapes, which are none of our business
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
