"""What is made when it is first used, so that importing costs little: names of packages, patterns.

__getattr__, __dir__ = on_demand(__name__, {"Journal": "journal"})
_WORD = pattern(r"\\w+")

`cached` is for what objects find out about themselves.
"""

import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar, cast, overload

__all__ = ["cached", "on_demand", "pattern"]

Value = TypeVar("Value")


def on_demand(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The two functions of a package; `homes` says which of its modules has each name."""

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, names


def pattern(source: str, flags: int = 0) -> re.Pattern[str]:
    """`re.compile`, put off: the twenty patterns that replies are read with take milliseconds."""
    return cast("re.Pattern[str]", _Pattern(source, flags))


class _Pattern:
    def __init__(self, source: str, flags: int) -> None:
        self._given = source, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._given), name)  # `re` keeps what it has compiled.
        setattr(self, name, value)
        return value


class cached(Generic[Value]):  # noqa: N801 - read as a decorator
    """`functools.cached_property` without the lock that it takes before Python 3.12."""

    def __init__(self, find: Callable[[Any], Value]) -> None:
        self._find = find
        self.__doc__ = find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, one: None, owner: type | None = None) -> "cached[Value]": ...

    @overload
    def __get__(self, one: object, owner: type | None = None) -> Value: ...

    def __get__(self, one: object | None, owner: type | None = None) -> "Value | cached[Value]":
        if one is None:
            return self
        value = one.__dict__[self._name] = self._find(one)
        return value
