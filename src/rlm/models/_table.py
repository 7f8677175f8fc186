"""The data file: its rows, and how the name of a model finds its row."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rlm.messages import Price

__all__ = ["Row", "Source", "Table", "table"]

Rule = str | list[str]
"""A sign and a text: = equals, ^ starts with, * contains, $ ends with, ~ is a regular expression.
"""

LONGEST_NAME = 300
COMPACT_DATE = re.compile(r"-(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=[-:]|$)")


class Source(Struct, frozen=True):
    """Where the rows come from."""

    name: str
    version: str
    date: str
    licence: str
    notice: str


class Row(Struct, frozen=True, array_like=True):
    """One model: its usual name, the rules that its names match, and what is known about it."""

    id: str
    rules: list[Rule]
    window: int | None = None
    price: list[Any] | None = None

    def as_price(self) -> Price | None:
        return None if self.price is None else _as_price(self.price)


class Window(Struct, frozen=True, array_like=True):
    """A window that was written by hand, and its source."""

    rules: list[Rule]
    window: int
    source: str


class Supplement(Struct, frozen=True):
    date: str
    about: str
    windows: dict[str, list[Window]]


class Provider(Struct, frozen=True):
    fallback: list[str]
    models: list[Row]


class Table(Struct, frozen=True):
    """The whole file; the rows of a provider stay text until they are used."""

    source: Source
    supplement: Supplement
    providers: dict[str, msgspec.Raw]

    def find(self, provider: str, name: str, *, exactly: bool = False) -> Row | None:
        """Return the first row that matches a name, of the provider or of its source."""
        for spelling in _spellings(name):
            own = _provider(provider)
            for home in (own, *(_provider(other) for other in own.fallback)):
                for row in home.models:
                    if any(satisfies(rule, spelling, exactly) for rule in row.rules):
                        return row
        return None

    def window(self, provider: str, name: str, row: Row | None, exactly: bool) -> int | None:
        """Return the window from the supplement if it has one, else from the row."""
        homes = (provider, *_provider(provider).fallback)
        for each in (each for home in homes for each in self.supplement.windows.get(home, ())):
            if any(satisfies(rule, name.lower(), exactly) for rule in each.rules):
                return each.window
        return None if row is None else row.window

    def rows(self, provider: str) -> list[Row]:
        return _provider(provider).models


@cache
def table() -> Table:
    """Return the table, which is read on first use."""
    return msgspec.json.decode(Path(__file__).with_name("models.json").read_bytes(), type=Table)


@cache
def _provider(name: str) -> Provider:
    found = table().providers.get(name)
    return Provider([], []) if found is None else msgspec.json.decode(found, type=Provider)


def satisfies(rule: Rule, name: str, exactly: bool = False) -> bool:
    """Return whether a lower-case name matches a rule; with `exactly`, it must be equal."""
    if isinstance(rule, list):
        return not exactly and all(satisfies(part, name) for part in rule)
    sign, text = rule[0], rule[1:]
    if sign == "=":
        return name == text
    if exactly:
        return False
    if sign == "^":
        return name.startswith(text)
    if sign == "$":
        return name.endswith(text)
    return text in name if sign == "*" else re.search(text, name) is not None


def _spellings(name: str) -> list[str]:
    """Return the name as written, and with its date as in most rows: -20250807 is -2025-08-07."""
    lower = name.lower()[:LONGEST_NAME]
    dashed = COMPACT_DATE.sub(r"-\1-\2-\3", lower)
    return [lower] if dashed == lower else [lower, dashed]


def _as_price(parts: list[Any]) -> Price:
    """Read [input, output, from a cache, to a cache, [above N tokens, the same again]]."""
    whole: list[Any] = [*parts, None, None, None]
    plain, output, cached, write, longer = whole[:5]
    long = None if longer is None else (int(longer[0]), _as_price(longer[1]))
    return Price(float(plain), float(output), _rate(cached), _rate(write), long)


def _rate(value: float | None) -> float | None:
    return None if value is None else float(value)
