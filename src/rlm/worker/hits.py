"""The lists that searches return, which print in a readable form."""

from __future__ import annotations

__all__ = ["Hits", "Passages", "counted", "on_one_line"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_HIT_CHARS = 500


class Hits(list["Any"]):
    """The first hits of a search; `total` is how many there are in all.

    When printed, it shows both numbers, then one hit a line, each cut to a readable length.
    """

    def __init__(self, hits: Iterable[Any] = (), total: int = 0) -> None:
        super().__init__(hits)
        self.total = max(total, len(self))

    def __repr__(self) -> str:
        shown = [hit if isinstance(hit, str) else repr(hit) for hit in self]
        lines = [hit if len(hit) <= _HIT_CHARS else f"{hit[:_HIT_CHARS]}…" for hit in shown]
        count = counted(self.total, "hit")
        head = count if len(self) == self.total else f"{len(self):,} of {count}"
        return "\n".join([f"{head}:" if lines else head, *lines])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain list, so that any Python can load a saved chat."""
        return list, (list(self),)


class Passages(list["Any"]):
    """Passages, the best first: dicts with source, line, last_line, start, end, text and score.

    `source` is the name of the text, its index in a list, or None. When printed, each passage is
    below its place, such as `2. notes/april.md:12–14`.
    """

    def __str__(self) -> str:
        return "\n\n".join(
            "\n".join([f"{number}. {_label(each)}", *map(_indented, each["text"].splitlines())])
            for number, each in enumerate(self, 1)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain list, so that any Python can load a saved chat."""
        return list, (list(self),)


def _indented(line: str) -> str:
    return f"   {line}".rstrip()


def _label(passage: dict[str, Any]) -> str:
    source, first, last = passage["source"], passage["line"], passage["last_line"]
    lines = f"{first}" if first == last else f"{first}–{last}"
    if source is None:
        return f"line {lines}" if first == last else f"lines {lines}"
    return f"[{source}]:{lines}" if isinstance(source, int) else f"{on_one_line(source)}:{lines}"


def on_one_line(name: str) -> str:
    """Return a name with its control characters escaped, so that it can't look like two lines."""
    if name.isprintable():
        return name
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "replace").decode()
        for char in name
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 hit`, `2,000 hits`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
