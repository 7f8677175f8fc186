"""Search parts of files for a pattern, in a process with limits: see `rlm._util.limited`.

Files are read in blocks. Mapping them would take longer, because every process would fill its own
map, and a file that shrinks would kill it.
"""

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from rlm._util.patterns import (
    LineFilter,
    compile_filter,
    compile_for_lines,
    compile_literal,
    prepare,
)
from rlm._util.text import sendable
from rlm.data.corpus import pieces
from rlm.data.corpus.literals import facts_of
from rlm.data.corpus.reading import SourceChanged, open_source
from rlm.data.corpus.records import Fields, read_text
from rlm.data.filesystem.opening import Stamp

__all__ = ["preload", "search_spans"]

BLOCK_BYTES = 1 << 20
GROUP_CHARS = 1 << 18
"""How much text of records is searched at once."""
MAX_LINE_BYTES = 1 << 20
"""In a longer line, only the part around a possible match is searched."""
SHOWN_CHARS = 300
_STEP_BYTES = 1 << 16
"""How much is read at once to find the end of a line."""

_UNESCAPED = re.compile(r"[A-Za-z0-9 ,.;:_\-]+")
"""Characters that JSON writers leave unchanged or write as `\\u00…`."""
_ESCAPE, _ANY_ESCAPE = b"\\u00", b"\\u"
"""If case is ignored, any escape may match a letter: to `re`, `İ` is an i."""


class _Window(NamedTuple):
    """Whole lines of an open file, between two offsets."""

    fd: int
    first: int
    last: int


def preload() -> None:
    """Do what every search does first, so that forked processes share it."""
    prepare()
    _Search(r"any\d", False, Fields())


def search_spans(
    spans: list[list[Any]], pattern: str, ignore_case: bool, most: int, fields: list[Any]
) -> dict[str, Any]:
    """Return matching lines and changed files of spans: path, size, mtime, start, end, is_lines.

    A match is the span, the offset of the line in the file, the line of a record from 1 (0 for a
    text), and the text around the match.
    """
    search = _Search(pattern, ignore_case, Fields(*fields))
    matches: list[list[Any]] = []
    changed: list[int] = []
    for number, (path, size, mtime_ns, start, end, is_lines) in enumerate(spans):
        try:
            with open_source(Path(os.fsdecode(bytes.fromhex(path))), Stamp(size, mtime_ns)) as file:
                window = _window(file.fileno(), size, start, end, is_lines)
                found = search.records(window) if is_lines else search.lines(window)
                for each in found:
                    matches.append([number, *each])
                    if len(matches) == most:
                        return {"matches": matches, "changed": changed}
        except (SourceChanged, OSError):
            changed.append(number)
    return {"matches": matches, "changed": changed}


def _window(fd: int, size: int, start: int, end: int, is_lines: bool) -> _Window:
    """Return the lines that begin between two offsets of a file."""
    longest = pieces.MAX_LINE_BYTES if is_lines else MAX_LINE_BYTES
    limit = min(size, end + longest)
    first = 0 if start == 0 else _line_after(fd, start - 1, limit)
    last = limit if end >= size else _line_after(fd, max(0, end - 1), limit)
    return _Window(fd, min(first, last), last)


def _line_after(fd: int, place: int, limit: int) -> int:
    """Return where the next line after an offset begins; `limit` if none begins before it."""
    while place < limit:
        step = _read(fd, place, min(place + _STEP_BYTES, limit))
        newline = step.find(b"\n")
        if newline >= 0:
            return place + newline + 1
        place += len(step)
    return limit


def _last_line(fd: int, start: int, end: int) -> int:
    """Return where the last line between two offsets begins, or `start` if none does."""
    while end > start:
        before = max(start, end - _STEP_BYTES)
        newline = _read(fd, before, end).rfind(b"\n")
        if newline >= 0:
            return before + newline + 1
        end = before
    return start


def _read(fd: int, start: int, end: int) -> bytes:
    read = os.pread(fd, end - start, start)
    if len(read) < end - start:
        raise SourceChanged("it has become shorter")
    return read


class _Filters(NamedTuple):
    """Filters for the lines that may match; a line must pass one of them."""

    each: tuple[LineFilter, ...]
    needs_utf8: bool

    @classmethod
    def of(cls, found: LineFilter | None) -> "_Filters | None":
        return None if found is None else cls((found,), needs_utf8=True)

    @classmethod
    def for_literal(cls, literal: str, ignores_case: bool, *others: bytes) -> "_Filters | None":
        """Return filters for lines that hold a literal, or one of `others`."""
        if not literal:
            return None
        if ignores_case:
            first = compile_filter(re.escape(literal), ignore_case=True)
        else:
            first = compile_literal(literal.encode("utf-8", "surrogatepass"))
        if first is None:
            return None
        return cls((first, *map(compile_literal, others)), needs_utf8=ignores_case)

    def suit(self, block: bytes) -> bool:
        return not self.needs_utf8 or _is_utf8(block)

    def passing(self, block: bytes, longest: int) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that pass, or the relevant part of a longer line, with their offsets."""
        at, following = 0, [first(block, 0) for first in self.each]
        while at < len(block):
            found = min((place for place in following if place >= 0), default=-1)
            if found < 0:
                return
            start = max(at, found - longest // 2, block.rfind(b"\n", at, found) + 1)
            if start == len(block):  # No line begins after the last line end.
                return
            end = block.find(b"\n", found, found + longest // 2)
            end = min(len(block), found + longest // 2) if end < 0 else end
            yield start, block[start:end]
            at = end + 1
            following = [
                place if place >= at or place < 0 else first(block, at)
                for place, first in zip(following, self.each, strict=True)
            ]


class _Search:
    def __init__(self, pattern: str, ignore_case: bool, fields: Fields) -> None:
        literal, ignores_case, spans_lines = facts_of(pattern, ignore_case=ignore_case)
        self._line: Any = compile_for_lines(pattern, ignore_case=ignore_case)
        self._text: re.Pattern[str] | None = None
        if spans_lines:
            self._text = re.compile(pattern, re.MULTILINE | (re.IGNORECASE if ignore_case else 0))
        self._filter = compile_filter(pattern, ignore_case=ignore_case)
        self._in_lines = _Filters.for_literal(literal, ignores_case) or _Filters.of(self._filter)
        unescaped = max(_UNESCAPED.findall(literal), key=len, default="")
        escape = _ANY_ESCAPE if ignores_case else _ESCAPE
        self._in_records = _Filters.for_literal(unescaped, ignores_case, escape) or _Filters.of(
            compile_filter(pattern, ignore_case=ignore_case, in_json=True)
        )
        self._fields = fields

    def lines(self, window: _Window) -> Iterator[tuple[int, int, str]]:
        """Yield the matching lines of a text: offset, 0, and the text around the match."""
        for start, block in _blocks(window):
            for place, line in self._candidates(block):
                if (shown := self._match(sendable(line))) is not None:
                    yield start + place, 0, shown

    def _candidates(self, block: bytes) -> Iterator[tuple[int, str]]:
        """Yield the lines that may match, each with its offset."""
        if self._in_lines is not None and self._in_lines.suit(block):
            for start, passed in self._in_lines.passing(block, MAX_LINE_BYTES):
                yield start, passed.decode("utf-8", "replace")
            return
        text = block.decode("utf-8", "surrogateescape")
        at = counted = 0
        for place, line in self._lines_of(text):
            at += _size(text[counted:place])
            counted = place
            yield at, line

    def _lines_of(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the lines of a text that may match, each with its offset."""
        place = 0
        while place < len(text):
            if self._text is not None:
                found = self._text.search(text, place)
                if found is None:
                    return
                place = text.rfind("\n", place, found.start()) + 1 or place
                if place == len(text):  # No line begins after the last line end.
                    return
            end = text.find("\n", place)
            end = len(text) if end < 0 else end
            yield place, text[place:end]
            place = end + 1

    def records(self, window: _Window) -> Iterator[tuple[int, int, str]]:
        """Yield the matching lines of records: offset of the record, line in its text, text."""
        texts = self._texts(window)
        if self._filter is not None:
            texts = _filtered(self._filter, texts)
        for start, text in texts:
            before = counted = 0
            for place, line in self._lines_of(text):
                before += text.count("\n", counted, place)
                counted = place
                if (shown := self._match(line)) is not None:
                    yield start, before + 1, shown

    def _texts(self, window: _Window) -> Iterator[tuple[int, str]]:
        """Yield the texts of the records that may match, each with the offset of its record."""
        for start, line in self._records_that_may_match(window):
            if (text := read_text(line, self._fields)) is not None:
                yield start, text

    def _records_that_may_match(self, window: _Window) -> Iterator[tuple[int, bytes]]:
        for start, block in _blocks(window):
            if self._in_records is not None and self._in_records.suit(block):
                for place, line in self._in_records.passing(block, 2 * len(block)):
                    yield start + place, line
            else:
                place = start
                for line in block.split(b"\n"):
                    yield place, line
                    place += len(line) + 1

    def _match(self, line: str) -> str | None:
        """Return the part of a line around its match."""
        found = self._line.search(line)
        if found is None:
            return None
        start = max(0, found.start() - SHOWN_CHARS // 3)
        return line[start : start + SHOWN_CHARS].rstrip("\r")


def _filtered(passes: LineFilter, texts: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the texts that pass a filter, which searches many of them at once."""
    while group := _group(texts):
        parts = [text.encode() for _, text in group]
        begins = [0, *accumulate(len(part) + 1 for part in parts)]
        whole, start = b"\n".join(parts), 0
        while start < len(whole) and (found := passes(whole, start)) >= 0:
            number = bisect_right(begins, found) - 1
            yield group[number]
            start = begins[number + 1]


def _group(texts: Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    group, chars = [], 0
    for place, text in texts:
        group.append((place, text))
        chars += len(text)
        if chars >= GROUP_CHARS:
            break
    return group


def _blocks(window: _Window) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of about a megabyte, or one longer line, each with its offset."""
    start = window.first
    while start < window.last:
        end = min(start + BLOCK_BYTES, window.last)
        if end < window.last:
            line = _last_line(window.fd, start, end)
            end = line if line > start else _line_after(window.fd, end, window.last)
        yield start, _read(window.fd, start, end)
        start = end


def _is_utf8(block: bytes) -> bool:
    try:
        return block.isascii() or bool(block.decode())
    except UnicodeDecodeError:
        return False


def _size(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogateescape"))
