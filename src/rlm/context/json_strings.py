"""Find the strings of a JSON text, and where each is, without decoding the rest.

Decoding makes an object of every value: ten megabytes can hold millions of empty lists, which took
670 MB with their names, while all other threads waited for the decoder and the garbage collector.
This reads a part of the text at a time, and keeps only where it is.
"""

import json
import re
import zlib
from collections.abc import Iterator

from rlm._util.limited import check_wanted

__all__ = ["strings_in"]

MAX_DEPTH = 1_000
MAX_NAME_CHARS = 1_000
_PART_CHARS = 1 << 16

_TOKEN = re.compile(r'"(?:([^"\\]*+)"\s*+([:,])?+)?|[\[\]{},:]')
"""A string without escapes, with the mark that follows; or the beginning of another; or a mark."""

_PIECE = re.compile(
    r'(?:[^"\\]{1,4096}+|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u[0-9a-fA-F]{4}|\\[^u]){1,500}+'
)
"""A piece of a string, which splits no escape, and no two escapes of one character."""


def strings_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield where every string is, such as `reports[3].title`, and the string.

    Raise ValueError where the text is not JSON; only mistakes that matter here are noticed.
    An object that repeats a key counts as a mistake, because cells see only its last value.
    """
    path, at = _Path(), 0
    string: str | None = None  # It is a key if a colon follows.
    while at < len(text):
        check_wanted()
        until = at + _PART_CHARS
        for token in _TOKEN.finditer(text, at, until):
            at = token.end()
            plain, mark = token.groups()
            if plain is not None:
                string = plain
            else:
                mark = token[0]
                if mark == '"':
                    string, at = _string_from(text, at)
                    break
            if mark == ":":
                path.key(string)
                string = None
            elif mark is not None:
                if string is not None:
                    yield path.name, string
                    string = None
                path.move(mark)
        else:
            at = until
    if string is not None:
        yield path.name, string


def _string_from(text: str, start: int) -> tuple[str, int]:
    """Return the string that begins here, after its quotation mark, and where it ends."""
    pieces, at = [], start
    while piece := _PIECE.match(text, at):
        at, part = piece.end(), piece[0]
        pieces.append(json.loads(f'"{part}"', strict=False) if "\\" in part else part)
    if text[at : at + 1] != '"':
        raise ValueError(f"a string does not end (char {start - 1})")
    return "".join(pieces), at + 1


_NO_KEYS: set[str] = set()


class _Path:
    """Where a reader of JSON is: the lists and objects around it, and its place in each."""

    def __init__(self) -> None:
        self._places: list[int | str] = []  # of the current item: its index or its key
        self._keys: list[set[str]] = []  # that each of them has had so far
        self._names: list[str] = []  # of the lists and objects around it; made when needed

    @property
    def name(self) -> str:
        names, places = self._names, self._places
        if not places:
            return ""
        if not names:
            names.append("")
        while len(names) < len(places):
            names.append(_joined(names[-1], places[len(names) - 1]))
        return _joined(names[-1], places[-1])

    def key(self, key: str | None) -> None:
        if not self._places or isinstance(self._places[-1], int) or key is None:
            raise ValueError("a colon is not after a key")
        if key in self._keys[-1]:  # Cells see only its last value.
            raise ValueError(f"an object has the key {key[:80]!r} twice")
        self._keys[-1].add(key)
        self._places[-1] = key

    def move(self, mark: str) -> None:
        """Go on to the next item, or enter or leave a list or object."""
        places = self._places
        if mark == ",":
            if not places:
                raise ValueError("there is more than one value")
            if isinstance(place := places[-1], int):
                places[-1] = place + 1
        elif mark in "[{":
            if len(places) >= MAX_DEPTH:
                raise ValueError(f"it is nested more than {MAX_DEPTH:,} deep")
            places.append(0 if mark == "[" else "")
            self._keys.append(_NO_KEYS if mark == "[" else set())
        elif places:
            places.pop()
            self._keys.pop()
            del self._names[len(places) :]
        else:
            raise ValueError(f"{mark} closes nothing")


def _joined(name: str, place: int | str) -> str:
    if isinstance(place, int):
        place = f"[{place}]"
    elif name:
        place = f".{place}"
    whole = name + place
    if len(whole) <= MAX_NAME_CHARS:
        return whole
    return f"{whole[:MAX_NAME_CHARS]}…{zlib.crc32(whole.encode('utf-8', 'replace')):08x}"
