"""The user's variables: their names, their descriptions, and what a cell changed."""

from __future__ import annotations

import collections

from .bounds import (
    MAX_CHANGED_VARIABLES,
    MAX_DELETED_VARIABLES,
    MAX_DESCRIPTION_CHARS,
    MAX_NAME_CHARS,
    MAX_VARIABLES_BYTES,
)

__all__ = ["ShownVariables", "Variables", "describe", "size_of", "type_name"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .namespace import Namespace

_FEW = 100
"""This many names and descriptions always fit into a report."""
_SIZED: tuple[Any, ...] = (
    str,
    bytes,
    bytearray,
    list,
    tuple,
    dict,
    set,
    frozenset,
    collections.deque,
    range,
)
_EXACTLY_SIZED = frozenset(_SIZED)


class ShownVariables(str):
    """A text that looks the same printed and echoed."""

    def __repr__(self) -> str:
        return str(self)


def size_of(value: Any) -> int | None:
    """Return the length of a built-in container; a user-written `__len__` is never run."""
    kind = type(value)
    if kind in _EXACTLY_SIZED:
        return len(value)
    if not issubclass(kind, _SIZED):
        return None
    for base in _SIZED:
        if issubclass(kind, base):
            return int(base.__len__(value))
    return None


def type_name(value: Any) -> str:
    """Return the name of a value's type, without running a user-written metaclass."""
    name: str = type.__getattribute__(type(value), "__name__")
    return name


def describe(value: Any) -> str:
    """Return the type and length of a value: `list[3120]`, `str[812]`, `int`, `DataFrame`."""
    size = size_of(value)
    name = type_name(value)[: MAX_DESCRIPTION_CHARS // 2]
    return name if size is None else f"{name}[{size}]"


def _fit(new: dict[str, str], changed: dict[str, str], deleted: list[str]) -> None:
    """Drop what does not fit into a report; new variables take precedence."""
    room = MAX_VARIABLES_BYTES
    for news in (new, changed):
        for name in list(news):
            room -= _size_bytes(name) + _size_bytes(news[name])
            if room < 0:
                del news[name]
    fitting: list[str] = []
    for name in deleted:
        room -= _size_bytes(name)
        if room < 0 or len(fitting) == MAX_DELETED_VARIABLES:
            break
        fitting.append(name)
    deleted[:] = fitting


def _size_bytes(word: str) -> int:
    return len(word.encode("utf-8", "surrogatepass")) + 1


class Variables:
    """Watches the namespace from cell to cell."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._seen: dict[str, tuple[int, int | None]] = {}

    def current(self) -> dict[str, Any]:
        """Return the user's variables, by name."""
        return dict(self._namespace.users_own())

    def changes(self) -> tuple[dict[str, str], dict[str, str], list[str]]:
        """Return what is new, changed (by identity or length) and deleted since the last call.

        `bounds` limits how much a report may contain.
        """
        before, seen = self._seen, {}
        new: dict[str, str] = {}
        changed: dict[str, str] = {}
        for name, value in self._namespace.users_own():
            seen[name] = mark = (id(value), size_of(value))
            if before.get(name) != mark:
                news = changed if name in before else new
                if len(news) < MAX_CHANGED_VARIABLES and len(name) <= MAX_NAME_CHARS:
                    news[name] = describe(value)
        self._seen = seen
        deleted = [n for n in before if n not in seen and len(n) <= MAX_NAME_CHARS]
        if len(new) + len(changed) + len(deleted) > _FEW:
            _fit(new, changed, deleted)
        return new, changed, deleted

    def show(self) -> ShownVariables:
        """Return your variables, one `name: type[length]` per line."""
        lines = [f"{name}: {describe(value)}" for name, value in self.current().items()]
        return ShownVariables("\n".join(lines) or "(no variables yet)")
