"""The parameters of a server's tool: shown as a Python signature, bound and checked."""

import keyword
import re
from collections.abc import Mapping
from typing import Any

from rlm.tools._arguments import DICT_HINT, POSITIONAL
from rlm.tools._shapes import Schemas, properties_of, required_of
from rlm.tools._texts import cut, one_line

__all__ = ["ServerParameters"]

MOST_PARAMETERS = 100
MOST_SHOWN_CHARS = 400
MOST_NAME_CHARS = 60
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_]+")


class ServerParameters:
    """What a tool takes, required ones first; each goes by its own name or by a Python one."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schemas = Schemas(schema)
        members, needed = properties_of(schema), required_of(schema)
        order = sorted(list(members)[:MOST_PARAMETERS], key=lambda name: name not in needed)
        self._required = [name for name in order if name in needed]
        self._members = {name: members[name] for name in order}
        self._python = _python_names(order)
        more = schema.get("additionalProperties")
        self._takes_more = bool(more) if members else more is not False
        self.shown = self._signature()
        self.notes = {
            python: told
            for python, name in self._python.items()
            if isinstance(told := _member(members[name], "description"), str) and told.strip()
        }

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments by the names the server uses; TypeError tells what does not fit."""
        named = dict(arguments)
        positional = named.pop(POSITIONAL, [])
        if not isinstance(positional, list):
            raise TypeError(f"{POSITIONAL!r} must hold a list of positional arguments")
        if len(positional) > len(self._members):
            raise TypeError(f"it takes {len(self._members)} arguments, not {len(positional)}")
        bound = dict(zip(self._members, positional, strict=False))
        if not positional and self._is_one_dict(named):
            named = {next(iter(self._members)): named}
        for given, value in named.items():
            name = given if given in self._members else self._python.get(given, given)
            if name in bound:
                raise TypeError(f"{one_line(given, MOST_NAME_CHARS)!r} is given twice")
            if name not in self._members and not self._takes_more:
                unknown = one_line(given, MOST_NAME_CHARS)
                raise TypeError(f"there is no argument {unknown!r}{self._hint()}")
            bound[name] = value
        self._check(bound)
        return bound

    def _check(self, bound: dict[str, Any]) -> None:
        for name in self._required:
            if name not in bound:
                raise TypeError(f"{one_line(name, MOST_NAME_CHARS)!r} is missing")
        for name, schema in self._members.items():
            if name in bound and (problem := self._schemas.problem(bound[name], schema)):
                raise TypeError(f"argument {one_line(name, MOST_NAME_CHARS)!r}: {problem}")

    def _is_one_dict(self, named: dict[str, Any]) -> bool:
        """Whether these names are none of ours, and the first parameter takes a dict with them.

        The worker sends a dict given alone as named arguments.
        """
        if not named or not self._members:
            return False
        if not named.keys().isdisjoint({*self._members, *self._python}):
            return False
        first = next(iter(self._members.values()))
        return self._takes_dict(first) and self._schemas.problem(named, first) is None

    def _takes_dict(self, schema: Any) -> bool:
        return self._schemas.shown(schema).startswith(("dict", "{"))

    def _hint(self) -> str:
        first = next(iter(self._python.items()), None)
        if first is None or not self._takes_dict(self._members[first[1]]):
            return ""
        return DICT_HINT.format(first[0])

    def _signature(self) -> str:
        shown: list[str] = []
        left = MOST_SHOWN_CHARS
        for python, name in self._python.items():
            text = f"{python}: {self._schemas.shown(self._members[name])}"
            if name not in self._required:
                text += f" = {_default(self._members[name])}"
            left -= len(text)
            if left < 0:
                shown.append("…")
                break
            shown.append(text)
        return f"({', '.join(shown)})"


def _python_names(names: list[str]) -> dict[str, str]:
    """A Python name for each, none twice; most are their own."""
    found: dict[str, str] = {}
    for name in names:
        base = _NOT_A_NAME.sub("_", name[:MOST_NAME_CHARS]).strip("_") or "argument"
        if base[0].isdigit():
            base = f"argument_{base}"
        if keyword.iskeyword(base):
            base += "_"
        python, number = base, 2
        while python in found:
            python, number = f"{base}_{number}", number + 1
        found[python] = name
    return found


def _member(schema: Any, key: str) -> Any:
    return schema.get(key) if isinstance(schema, Mapping) else None


def _default(schema: Any) -> str:
    if not isinstance(schema, Mapping) or "default" not in schema:
        return "..."
    return cut(one_line(repr(schema["default"]), 200), 40)
