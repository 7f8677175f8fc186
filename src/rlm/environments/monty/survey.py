"""What a cell needs of Python, and which of it monty has: found out by asking monty itself.

Lists of what an interpreter supports are out of date with its next release. So names are collected
from the cell's syntax tree, and those not met before are tried in a worker, once per process.
"""

import ast
import builtins
import sys
from collections.abc import Iterable

__all__ = ["METHODS", "Survey", "needs", "probe"]

_TYPES = (str, bytes, list, tuple, dict, set, frozenset, int, float)
METHODS = {
    name: tuple(kind.__name__ for kind in _TYPES if hasattr(kind, name))
    for kind in _TYPES
    for name in dir(kind)
    if name[0] != "_"
}
_BUILTINS = frozenset(
    {name for name in dir(builtins) if name[0] != "_"} | {"exit", "quit", "help", "copyright"}
)
_NOT_THERE = {
    "open": "files",
    "property": "properties",
    "staticmethod": "static methods",
    "classmethod": "class methods",
    "object": "plain objects",
    "super": "inheritance",
}
_FILE_MODULES = frozenset({"os", "pathlib", "shutil", "tempfile", "glob"})


def needs(tree: ast.Module, modules: dict[str, str]) -> set[str]:
    """What the cell names, as `module json`, `attribute json.loads`, `name len`, `method split`.

    `modules` are the names under which earlier cells imported modules; those of this are added.
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.add(f"module {alias.name}")
                name = alias.asname or alias.name.partition(".")[0]
                modules[name] = alias.name if alias.asname else name
        elif isinstance(node, ast.ImportFrom):
            found.add(f"module {node.module}")
            found |= {f"attribute {node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _BUILTINS:
            found.add(f"name {node.id}")
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in modules:
                found.add(f"attribute {modules[node.value.id]}.{node.attr}")
            elif node.attr in METHODS:
                found.add(f"method {node.attr}")
    return found


class Survey:
    """What is known so far; `lacks` is a need that monty does not meet, in words, or None."""

    def __init__(self) -> None:
        self._lacks: dict[str, str | None] = {}

    def unknown(self, wanted: Iterable[str]) -> list[str]:
        """What has to be asked for."""
        for need in wanted:
            if need not in self._lacks and (known := _known_beforehand(need)) is not None:
                self._lacks[need] = known or None
        return sorted(need for need in wanted if need not in self._lacks)

    def take(self, asked: Iterable[str], missing: Iterable[str]) -> None:
        """Remember what monty answered to `probe`."""
        missing = set(missing)
        self._lacks.update({need: _in_words(need) if need in missing else None for need in asked})

    def lacks(self, wanted: Iterable[str]) -> str | None:
        """The first of these that monty does not have."""
        in_order = sorted(wanted, key=lambda need: (not need.startswith("module "), need))
        return next((lack for need in in_order if (lack := self._lacks[need])), None)


def _known_beforehand(need: str) -> str | None:
    """Why it is missing, "" if it is nobody's business, None if monty has to be asked."""
    kind, _, name = need.partition(" ")
    if kind == "name" and name in _NOT_THERE:
        return f"{_NOT_THERE[name]} ({name})"
    if kind in {"module", "attribute"}:
        root = name.partition(".")[0]
        if root in _FILE_MODULES:
            return f"files and the system (module {root})"
        if root not in sys.stdlib_module_names:
            return ""  # Full Python may not have it either: the error is the user's.
    return None


def _in_words(need: str) -> str:
    kind, _, name = need.partition(" ")
    if kind == "method":
        return f"the method {name} of {' or '.join(METHODS[name])}"
    return f"the {'name' if kind == 'attribute' else kind} {name}".replace("name name", "name")


def probe(wanted: list[str]) -> str:
    """Code for monty whose value is the list of those it lacks; all names are identifiers."""
    lines = ["_rlm_missing = []"]
    for need in wanted:
        kind, _, name = need.partition(" ")
        if kind == "method":
            lines += [_call(kind_name, name, need) for kind_name in METHODS[name]]
            continue
        if kind == "name":
            test = name
        elif kind == "module":
            test = f"import {name} as _rlm_module"
        else:
            module, _, attribute = name.rpartition(".")
            test = f"from {module} import {attribute} as _rlm_module"
        lines.append(f"try:\n    {test}")
        lines.append(f"except (ImportError, NameError): _rlm_missing.append({need!r})")
    return "\n".join([*lines, "_rlm_missing"])


def _call(type_name: str, method: str, need: str) -> str:
    """monty's methods can only be called: one that is not there says so, others want arguments."""
    return (
        f"try: {type_name}().{method}()\n"
        f"except AttributeError: _rlm_missing.append({need!r})\n"
        "except Exception: pass"
    )
