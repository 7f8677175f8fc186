"""Write docs/reference/api/rlm.md from the code: signatures, docstrings, fields and defaults.

The prose is in rlm.md.in; descriptions.toml has one line of meaning for each keyword and field. A
missing or superfluous description is an error. Run this with `make docs`.
"""

import collections.abc
import dataclasses
import inspect
import re
import string
import sys
import tomllib
import types
import typing
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, Literal

from rlm import api
from rlm.api import RLM
from rlm.chat.chat import Chat
from rlm.compat.types import Completion, ModelUsage, UsageTotals
from rlm.context import ContextValue
from rlm.events import Event
from rlm.messages import Usage
from rlm.results import RunResult, UsageSummary

__all__ = ["PAGE", "Descriptions", "main", "render"]

PAGE = Path(__file__).with_name("api") / "rlm.md"
TEMPLATE = PAGE.with_name("rlm.md.in")
DESCRIPTIONS = PAGE.with_name("descriptions.toml")

WITH_FIELDS: tuple[type, ...] = (
    *(RunResult, UsageSummary, Usage),
    *(Completion, UsageTotals, ModelUsage),
)
ALIASES: dict[Any, str] = {Event: "Event", ContextValue: "ContextValue"}
"""Unions that are shown by their own name."""


class Descriptions:
    """The lines of descriptions.toml, each of which must be used exactly once."""

    def __init__(self, tables: dict[str, dict[str, str]]) -> None:
        self._lines = {
            f"{table}.{name}": text
            for table, lines in tables.items()
            for name, text in lines.items()
        }
        self._wanted: set[str] = set()

    def of(self, owner: str, name: str) -> str:
        key = f"{owner}.{name}"
        self._wanted.add(key)
        return self._lines.get(key, "")

    def complaints(self) -> list[str]:
        known = set(self._lines)
        missing = [f"{key} has no description" for key in sorted(self._wanted - known)]
        return missing + [f"{key} describes nothing" for key in sorted(known - self._wanted)]


def render(descriptions: Descriptions | None = None) -> str:
    """Return the page; raise ValueError if the descriptions do not match the code."""
    if descriptions is None:
        descriptions = Descriptions(tomllib.loads(DESCRIPTIONS.read_text("utf-8")))
    parts = {
        "about": _docstring(RLM),
        "constructor": _constructor(descriptions),
        "rlm_methods": _methods(RLM, descriptions),
        "context_value": _type_text(ContextValue, aliases={}, code=True),
        "functions": _table(
            ("function", "returns", "meaning"),
            (_method_row("function", each, descriptions) for each in _functions(api)),
        ),
        "chat": _docstring(Chat),
        "chat_methods": _methods(Chat, descriptions),
        "completion_methods": _methods(Completion, descriptions),
        "usage_totals_methods": _methods(UsageTotals, descriptions),
        **{owner.__name__: _fields(owner, descriptions) for owner in WITH_FIELDS},
    }
    if complaints := descriptions.complaints():
        raise ValueError("; ".join(complaints))
    return string.Template(TEMPLATE.read_text("utf-8")).substitute(parts)


def _constructor(descriptions: Descriptions) -> str:
    rows = (
        (
            f"`{each.name}`",
            f"`{_default(each.default)}`",
            _type_text(each.annotation, code=True),
            descriptions.of("RLM", each.name),
        )
        for each in inspect.signature(RLM, eval_str=True).parameters.values()
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)  # the reference's
    )
    return _table(("keyword", "default", "type", "meaning"), rows)


def _methods(owner: type, descriptions: Descriptions) -> str:
    functions = [
        each for each in vars(owner).values() if inspect.isfunction(each) and _is_public(each)
    ]
    rows = (_method_row(owner.__name__, each, descriptions) for each in functions)
    return _table(("method", "returns", "meaning"), rows)


def _functions(module: types.ModuleType) -> list[types.FunctionType]:
    return [each for each in vars(module).values() if _is_own_function(each, module)]


def _is_own_function(value: Any, module: types.ModuleType) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__ and _is_public(value)


def _is_public(function: types.FunctionType) -> bool:
    return not function.__name__.startswith("_")


def _method_row(
    owner: str, function: types.FunctionType, descriptions: Descriptions
) -> tuple[str, str, str]:
    """Return the call, the returned type, and the docstring or else the description."""
    name = function.__name__
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in inspect.signature(function).parameters.values()
        if each.name != "self"
    ]
    returned = typing.get_type_hints(function)["return"]
    call = f"{name}{inspect.Signature(parameters)}"
    if inspect.isasyncgenfunction(inspect.unwrap(function)):
        call, returned = f"async for … in {call}", typing.get_args(returned)[0]
    elif typing.get_origin(returned) is collections.abc.Generator:
        call, returned = f"for … in {call}", typing.get_args(returned)[0]
    elif inspect.iscoroutinefunction(inspect.unwrap(function)):
        call = f"await {call}"
    meaning = _docstring(function) if function.__doc__ else descriptions.of(owner, name)
    return f"`{call}`", "" if returned is type(None) else _type_text(returned, code=True), meaning


def _fields(owner: type, descriptions: Descriptions) -> str:
    """Return the table of its fields, then of its properties."""
    hints = typing.get_type_hints(owner)
    kinds = {name: hints[name] for name in _field_names(owner)}
    for name, value in vars(owner).items():
        if isinstance(value, property):
            kinds[name] = typing.get_type_hints(value.fget)["return"]
    rows = (
        (f"`{name}`", _type_text(kind, code=True), descriptions.of(owner.__name__, name))
        for name, kind in kinds.items()
    )
    return _table(("field", "type", "meaning"), rows)


def _field_names(owner: Any) -> list[str]:
    if dataclasses.is_dataclass(owner):
        return [each.name for each in dataclasses.fields(owner)]
    return list(owner.__struct_fields__)


def _type_text(kind: Any, aliases: dict[Any, str] = ALIASES, *, code: bool = False) -> str:
    """Return a type as people write it, the same on every version of Python."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    for alias, name in aliases.items():
        if kind == alias:
            return f"`{name}`" if code else name
    if origin is Literal:
        texts = [f"`{_default(part)}`" if code else _default(part) for part in parts]
        return (", " if code else " | ").join(texts)
    if origin in (typing.Union, types.UnionType):
        return (", " if code else " | ").join(_type_text(part, code=code) for part in parts)
    text = "None" if kind is type(None) else getattr(kind, "__name__", str(kind))
    if isinstance(kind, list):  # the arguments of a Callable
        text = f"[{', '.join(map(_type_text, kind))}]"
    elif kind is ...:
        text = "..."
    elif origin is not None and origin is not AsyncGenerator:
        text = f"{origin.__name__}[{', '.join(map(_type_text, parts))}]"
    return f"`{text}`" if code else text


def _default(value: Any) -> str:
    return repr(value).replace("'", '"')


EXAMPLE = re.compile(r"(?<=\n\n)(?: {4}.*\n)+\n")
ARGUMENT = re.compile(r"^(\w+(?:, \w+)*):", re.MULTILINE)


def _docstring(thing: Any) -> str:
    """Return a docstring on one line, without its example, and with its arguments as code."""
    text = ARGUMENT.sub(r"`\1`:", EXAMPLE.sub("", inspect.getdoc(thing) or ""))
    return re.sub(r"\s+", " ", text).strip()


def _table(heading: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [_line(heading), "|" + "---|" * len(heading), *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: tuple[str, ...]) -> str:
    escaped = (text.replace("|", "\\|") for text in cells)
    return "".join(f"| {text} " if text else "| " for text in escaped) + "|"


def main() -> None:
    try:
        page = render()
    except ValueError as error:
        sys.exit(f"{DESCRIPTIONS.name}: {error}")
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
