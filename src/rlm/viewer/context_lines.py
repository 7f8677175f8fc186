"""The context of a run line by line: pages of rows, places of words, and places of citations.

A row is a line, or part of a very long one. Lines are counted within their document, from 1.
"""

import re
import threading
import time
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from rlm.citations import Citation
from rlm.errors import ConfigError
from rlm.viewer.contexts import ContextText

__all__ = ["ContextLines"]

ROW_CHARS = 1_000
PAGE_ROWS = 200
PAGE_CHARS = 60_000
WINDOW_CHARS = 1 << 22
MAX_SECONDS = 10.0
AROUND_CHARS = 80


class ContextLines:
    """The lines of one context. It blocks."""

    def __init__(self, context: ContextText) -> None:
        self.context = context
        self._text = context.text
        self._starts = _line_starts(context.text)
        self._documents = [start for _, start, _ in context.documents]

    # -- rows --------------------------------------------------------------------------------

    def page(self, at: int, above: int = 0) -> dict[str, Any]:
        """Return the rows from a character on, and where other pages begin.

        Up to `above` earlier rows come first.
        """
        first = self._row_at(min(at, max(0, len(self._text) - 1)))
        start = self._back(first, min(above, PAGE_ROWS // 2), PAGE_CHARS // 2)
        rows: list[dict[str, Any]] = []
        chars, here = 0, start
        while here < len(self._text) and len(rows) < PAGE_ROWS and chars < PAGE_CHARS:
            row = self._row(here)
            rows.append(row)
            chars += row["end"] - row["start"]
            here = self._next(here)
        return {
            "rows": rows,
            "start": start,
            "before": self._back(start, PAGE_ROWS, PAGE_CHARS) if start > 0 else None,
            "after": here if here < len(self._text) else None,
            "chars": len(self._text),
            "lines": len(self._starts),
            "documents": len(self._documents),
        }

    def line(self, document: int, line: int) -> int:
        """Return where a line of a document starts; for a number beyond the last line, that one."""
        if document >= len(self._documents):
            raise ConfigError(f"the context has {len(self._documents):,} documents")
        _, start, end = self.context.documents[document]
        first = bisect_right(self._starts, start) - 1
        last = bisect_right(self._starts, max(start, end - 1)) - 1
        return self._starts[min(last, first + max(1, line) - 1)]

    def _row(self, at: int) -> dict[str, Any]:
        number = bisect_right(self._starts, at) - 1
        document = max(0, bisect_right(self._documents, at) - 1)
        first = bisect_right(self._starts, self._documents[document]) - 1 if self._documents else 0
        end = min(self._line_end(number), at + ROW_CHARS)
        return {
            "document": document,
            "line": max(0, number - first) + 1,
            "column": at - self._starts[number],
            "start": at,
            "end": end,
            "text": self._text[at:end],
        }

    def _row_at(self, at: int) -> int:
        number = bisect_right(self._starts, at) - 1
        line, end = self._starts[number], self._line_end(number)
        # A line feed belongs to the last row of its line.
        return line + max(0, min(at, end - 1) - line) // ROW_CHARS * ROW_CHARS

    def _line_end(self, number: int) -> int:
        """Return where a line ends, without its line feed."""
        if number + 1 < len(self._starts):
            return self._starts[number + 1] - 1
        return len(self._text) - self._text.endswith("\n")

    def _next(self, at: int) -> int:
        number = bisect_right(self._starts, at) - 1
        if at + ROW_CHARS < self._line_end(number):
            return at + ROW_CHARS
        more = number + 1 < len(self._starts)
        return self._starts[number + 1] if more else len(self._text)

    def _back(self, at: int, rows: int, chars: int) -> int:
        """Return the start of the row N rows before, or fewer if those have too many characters."""
        lowest = max(0, at - chars)
        while rows > 0 and at > lowest:
            before = self._row_at(at - 1)
            if before < lowest:
                break
            at, rows = before, rows - 1
        return at

    # -- finding -----------------------------------------------------------------------------

    def find(self, words: str, start: int, limit: int, stop: threading.Event) -> dict[str, Any]:
        """Return the first places of a text from a character on, in any case.

        `next` is where to continue, or None at the end of the context.
        """
        places = _Places(self._text, words)
        deadline, at, hits = time.monotonic() + MAX_SECONDS, start, list[dict[str, Any]]()
        while at < len(self._text):
            if stop.is_set() or time.monotonic() > deadline:
                return {"hits": hits, "next": at}
            stop_at = min(len(self._text), at + WINDOW_CHARS)
            for found in places.within(at, stop_at + len(words) - 1):
                if len(hits) >= limit:
                    return {"hits": hits, "next": found}
                hits.append(self._hit(found, found + len(words)))
            # A place may begin in this window and end in the next.
            at = max(stop_at, hits[-1]["end"] if hits else 0)
        return {"hits": hits, "next": None}

    def _hit(self, start: int, end: int) -> dict[str, Any]:
        row = self._row(self._row_at(start))
        first = max(0, start - AROUND_CHARS)
        return {
            "start": start,
            "end": end,
            "line": row["line"],
            "document": row["document"],
            "excerpt": f"{'…' if first else ''}{self._text[first : end + AROUND_CHARS]}",
        }

    def cited(self, citation: Citation) -> tuple[int, int]:
        """Return the place of a citation; what counts is its text, which was checked before."""
        for start in self._possible_starts(citation):
            if self._text.startswith(citation.text, start):
                return start, min(len(self._text), start + citation.end - citation.start)
        found = self._text.find(citation.text) if citation.text else -1
        if found < 0:
            raise ConfigError("the cited text is not in this context")
        return found, found + len(citation.text)

    def _possible_starts(self, citation: Citation) -> list[int]:
        if not citation.text or citation.start < 0 or citation.end < citation.start:
            return []
        named = [start for name, start, _ in self.context.documents if name == citation.file]
        listed = re.fullmatch(r"\[(\d{1,9})\]", citation.file or "")
        if listed and int(listed[1]) < len(self._documents):
            named.append(self._documents[int(listed[1])])
        return [start + citation.start for start in [*named, *self._documents[:1]]]


class _Places:
    """Finds a text in any case, in linear time: a pattern would block all threads for minutes."""

    def __init__(self, text: str, words: str) -> None:
        self._text = text
        self._lowered = _lowered(words)

    def within(self, start: int, end: int) -> Iterator[int]:
        part = _lowered(self._text[start:end])
        at = part.find(self._lowered)
        while at >= 0:
            yield start + at
            at = part.find(self._lowered, at + len(self._lowered))


def _lowered(text: str) -> str:
    """Return a text in lower case and of the same length: only one letter becomes two."""
    return text.replace("\u0130", "i").lower()


def _line_starts(text: str) -> "array[int]":
    starts = array("Q", [0])
    at = text.find("\n")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    if len(starts) > 1 and starts[-1] == len(text):
        starts.pop()  # A line feed at the end starts no new line.
    return starts
