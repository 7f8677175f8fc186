"""Whole lines of a context that are too short to be told from chance, unless they stand out.

A list of names, or a table with short rows, would else seem unread however often it was read.
"""

import re

__all__ = ["SHORTEST", "ShortLines"]

SHORTEST = 8
MOST_LOOKED_UP = 4_000_000
_STARTS = re.compile(r"(?<!\w)\S")


class ShortLines:
    """The lines of a text that are shorter than `longest` and equal to no other line of it."""

    def __init__(self, text: str, longest: int) -> None:
        self.exact = True
        self._places: dict[str, int] = {}
        self._left = MOST_LOOKED_UP
        self._learn(text, longest)
        self._lengths = sorted({len(line) for line in self._places}, reverse=True)

    def _learn(self, text: str, longest: int) -> None:
        seen: set[str] = set()
        start = 0
        for line in text.split("\n"):
            bare = line.strip()
            if SHORTEST <= len(bare) < longest:
                if bare in seen:
                    self._places.pop(bare, None)
                else:
                    seen.add(bare)
                    self._places[bare] = start + line.index(bare)
            start += len(line) + 1

    def found_in(self, reading: str) -> list[tuple[int, int]]:
        """Where the lines are that a reading holds, each standing by itself."""
        if not self._places:
            return []
        found = []
        for match in _STARTS.finditer(reading):
            self._left -= len(self._lengths)
            if self._left < 0:
                self.exact = False
                break
            at = match.start()
            for length in self._lengths:
                end = at + length
                place = self._places.get(reading[at:end]) if end <= len(reading) else None
                if place is not None and not reading[end : end + 1].isalnum():
                    found.append((place, place + length))
                    break
        return found
