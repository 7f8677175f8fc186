"""Names and patterns that packages create on first use, so that importing is fast.

`__getattr__, __dir__ = on_demand(__name__, {"Journal": "journal"})`, `_WORD = pattern(r"\\w+")`
"""

import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, cast

__all__ = ["on_demand", "pattern"]


def on_demand(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package; `homes` maps names to its modules."""

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
    """Return a pattern that is compiled on first use: compiling all at once is slow."""
    return cast("re.Pattern[str]", _Pattern(source, flags))


class _Pattern:
    def __init__(self, source: str, flags: int) -> None:
        self._given = source, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._given), name)  # `re` caches compiled patterns.
        setattr(self, name, value)
        return value
