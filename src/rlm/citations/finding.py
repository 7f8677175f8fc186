"""Find places in the texts of a context, in one pass over pieces of them.

A context may be larger than memory, so texts arrive in pieces and are searched in windows: a piece
and the end of what came before it. Quotes are found by `str.find`, which takes linear time, never
by a regular expression: both quote and context may be hostile.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from msgspec.structs import replace

from rlm._util.limited import check_wanted
from rlm.citations.citation import MAX_TEXT_CHARS, Citation

__all__ = ["Found", "Source", "Texts", "find_quotes", "find_span"]

Texts = Iterator[tuple[str | None, Iterator[str]]]
"""Names (None for the only text) and texts, each in pieces, to be read in order."""

Source = Callable[[], Texts]
"""Returns the texts of a context, starting with the first each time it is called."""

MAX_PLACES = 1_000
"""Counting stops here: a single letter occurs everywhere."""

MAX_WORK_CHARS = 8_000_000_000
"""How many characters are compared for all quotes of one search: a few seconds' work."""

LOOSE_SPAN_CHARS = 64 << 10
"""The longest match of a quote with other white space, if it spans two pieces."""

_WORD = re.compile(r"\S+")
_TYPOGRAPHY = (("’", "'"), ("‘", "'"), ("“", '"'), ("”", '"'), ("–", "-"), ("—", "-"), ("‑", "-"))
_PUNCTUATION = ",.;:!? "


class Found(NamedTuple):
    """The citation of each quote, or None if it was not found; and the quotes not searched for."""

    citations: list[Citation | None]
    unsearched: int = 0


class _Window(NamedTuple):
    """Part of a text, from offset `start` in line `line`; `old` characters were seen before."""

    start: int
    line: int
    text: str
    old: int


class _Search:
    """One quote being searched for; `ending` is punctuation that need not follow it."""

    def __init__(self, quote: str, ending: str = "") -> None:
        self.quote = quote
        self.ending = ending
        self.first: Citation | None = None
        self.places = 0
        self.next_at = 0

    @property
    def citation(self) -> Citation | None:
        return None if self.first is None else replace(self.first, places=self.places)


_Find = Callable[[str | None, _Window, list[_Search]], None]


def find_quotes(source: Source, quotes: Sequence[str]) -> Found:
    """Find the first occurrence of each quote and count all; first exactly, then loosely.

    A loose match ignores differences in white space, in the form of quotation marks and dashes,
    and in punctuation at the end.
    """
    searches = [_Search(quote) for quote in quotes]
    room, worded = MAX_WORK_CHARS, [each for each in searches if each.quote.strip()]
    room = _pass(source(), worded, _find_exactly, room)
    for number, each in enumerate(searches):
        if each.first is None:
            whole = _loose(each.quote)
            quote = whole.rstrip(_PUNCTUATION)
            searches[number] = _Search(quote, whole[len(quote) :])
    if missing := [each for each in searches if each.first is None and each.quote]:
        room = _pass(source(), missing, _find_loosely, room)
    found = [each.citation for each in searches]
    return Found(found, found.count(None) if room <= 0 else 0)


def find_span(source: Source, start: int, end: int, name: str | int | None) -> Citation:
    """Return the place between two offsets; LookupError, with the reason, if there is none."""
    if not 0 <= start < end:
        raise LookupError(f"{start}:{end} is not a valid place: 0 <= start < end is required")
    file, pieces = _selected(source, name)
    at, line, first_line, last_line = 0, 1, 0, 0
    taken: list[str] = []
    for piece in pieces:
        check_wanted()
        stop = at + len(piece)
        if at <= start < stop:
            first_line = line + piece.count("\n", 0, start - at)
        if start < stop:
            taken.append(piece[max(0, start - at) : max(0, min(end, start + MAX_TEXT_CHARS) - at)])
        if end <= stop:
            last_line = line + piece.count("\n", 0, end - 1 - at)
            break
        line += piece.count("\n")
        at = stop
    if not last_line:
        raise LookupError(f"{start}:{end} is past the end, which is at {at:,}")
    text = "".join(taken)
    return Citation(file, start, end, first_line, last_line, text, 1, end - start - len(text))


def _selected(source: Source, name: str | int | None) -> tuple[str | None, Iterator[str]]:
    """Return the text that a name or an index selects; without either, the only text."""
    names = []
    for number, (file, pieces) in enumerate(source()):
        check_wanted()
        if name is not None and name in (file, number):
            return file, pieces
        names.append(file)
    ends = [n for n, file in enumerate(names) if _ends_with(file, name)]
    chosen = range(len(names)) if name is None else ends
    if len(chosen) == 1:
        return next(islice(source(), chosen[0], None))
    if name is None:
        raise LookupError(f"the context has {len(names):,} texts; name one: cite(start, end, name)")
    raise LookupError(f"the context has no text named {str(name)[:80]!r}")


def _ends_with(file: str | None, name: str | int | None) -> bool:
    return isinstance(name, str) and bool(name) and file is not None and file.endswith(f"/{name}")


# -- one pass over all texts ----------------------------------------------------------------------


def _pass(texts: Texts, searches: list[_Search], find: _Find, room: int) -> int:
    """Search all texts for all quotes; return how much work is left, 0 or less if exhausted."""
    overlap = _overlap(searches, loosely=find is _find_loosely)
    shortest = min((len(each.quote) for each in searches), default=0)
    for file, pieces in texts if searches and room > 0 else ():
        check_wanted()
        first, second = next(pieces, ""), next(pieces, None)
        if second is None and len(first) < shortest:
            continue  # Data has many short texts.
        for each in searches:
            each.next_at = 0
        whole = iter((first,)) if second is None else chain((first, second), pieces)
        for window in _windows(whole, overlap):
            check_wanted()
            room -= len(window.text) * len(searches)
            if room <= 0:
                return room
            find(file, window, searches)
    return room


def _overlap(searches: list[_Search], *, loosely: bool) -> int:
    longest = max((len(each.quote) for each in searches), default=1)
    return max(LOOSE_SPAN_CHARS, 2 * longest) if loosely else longest - 1


def _windows(pieces: Iterator[str], overlap: int) -> Iterator[_Window]:
    start, line, tail = 0, 1, ""
    for piece in _enlarged(pieces, 4 * overlap):
        text = tail + piece
        yield _Window(start, line, text, len(tail))
        gone = max(0, len(text) - overlap)
        line += text.count("\n", 0, gone)
        start += gone
        tail = text[gone:]


def _enlarged(pieces: Iterator[str], chars: int) -> Iterator[str]:
    """Join pieces that are smaller than `chars`, because each window reads the overlap again."""
    waiting: list[str] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= chars:
            yield "".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield "".join(waiting)


def _find_exactly(file: str | None, window: _Window, searches: list[_Search]) -> None:
    text = window.text
    for each in searches:
        size = len(each.quote)
        at = max(0, window.old - size + 1, each.next_at - window.start)
        while each.places < MAX_PLACES and (at := text.find(each.quote, at)) >= 0:
            if each.first is None:
                each.first = _citation(file, window, at, at + size)
            each.places += 1
            at += size
            each.next_at = window.start + at


def _find_loosely(file: str | None, window: _Window, searches: list[_Search]) -> None:
    text = _loose(window.text)
    old = len(_loose(window.text[: window.old]))
    for each in searches:
        size = len(each.quote)
        at = max(0, old - size + 1)
        while each.places < MAX_PLACES and (at := text.find(each.quote, at)) >= 0:
            if each.first is None:
                start, last = (_unfolded(window.text, text, p) for p in (at, at + size - 1))
                follows = window.text.startswith(each.ending, last + 1)
                end = last + 1 + (len(each.ending) if follows else 0)
                each.first = _citation(file, window, start, end)
            each.places += 1
            at += size


def _loose(text: str) -> str:
    """Return a text with single spaces and plain quotation marks and dashes."""
    if not text.isascii():
        for mark, plain in _TYPOGRAPHY:
            text = text.replace(mark, plain)
    return " ".join(text.split())


def _unfolded(text: str, loose: str, at: int) -> int:
    """Return the offset in a text of the character at `at` in its loose form."""
    word = next(islice(_WORD.finditer(text), loose.count(" ", 0, at), None))
    return word.start() + at - (loose.rfind(" ", 0, at) + 1)


def _citation(file: str | None, window: _Window, start: int, end: int) -> Citation:
    text = window.text
    first = window.line + text.count("\n", 0, start)
    return Citation(
        file,
        window.start + start,
        window.start + end,
        first,
        first + text.count("\n", start, end - 1),
        text[start : min(end, start + MAX_TEXT_CHARS)],
        1,
        max(0, end - start - MAX_TEXT_CHARS),
    )
