"""`ctx`: reading helpers over the payload, with exact offsets on any Unicode."""

from __future__ import annotations

import json
import re

from .hits import Hits, counted, on_one_line
from .lines import count_lines, line_spans, matching_lines, numbered

__all__ = ["METHODS", "ContextView"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .hits import Passages

_MAX_KEYS_SHOWN = 20

METHODS = (
    (
        "grep(pattern, context_lines=0, max_matches=50)",
        'list of "number: line" (in a dict "name:number: line") by regex; `.total` counts all',
    ),
    ("search(query, k=5)", "the best passages: dicts with `source`, `line`, `start`, `text`"),
    ("find(pattern, regex=False, max_matches=20)", "list of (start, end, text), and `.total`"),
    ("chunk(size, overlap=0)", "list of (start, end, text) over everything"),
    ("slice(start, end)", "str between two offsets"),
    ("lines(start, end)", "list of lines, counted from 1, both included"),
    ("documents()", "list of the items, of (name, value) pairs of a dict, or [text]"),
)
"""The methods of `ctx` that prompts list: how to call them, and what they return."""


class ContextView:
    """Read-only views of the payload. Offsets are indices into its text form.

    The text of a list is its items joined by blank lines. The text of a dict of texts has each of
    them below its name; that of any other dict is its JSON.
    """

    def __init__(self, payload: Any) -> None:
        self._payload = payload
        self._cached_text: str | None = payload if isinstance(payload, str) else None

    @property
    def _text(self) -> str:
        if self._cached_text is None:
            self._cached_text = _text_of(self._payload)
        return self._cached_text

    def slice(self, start: int = 0, end: int | None = None) -> str:
        """Return the text from `start` up to `end`, both clamped to the text."""
        return self._text[max(0, start) : None if end is None else max(0, end)]

    def find(
        self,
        pattern: str,
        regex: bool = False,
        max_matches: int = 20,
        case_sensitive: bool = True,
    ) -> list[tuple[int, int, str]]:
        """Return the first matches as (start, end, text); `.total` of the list counts all."""
        if not pattern:
            raise ValueError("the pattern is empty")
        flags = 0 if case_sensitive else re.IGNORECASE
        compiled = re.compile(pattern if regex else re.escape(pattern), flags)
        matches: list[tuple[int, int, str]] = []
        total = 0
        for match in compiled.finditer(self._text):
            total += 1
            if len(matches) < max_matches:
                matches.append((match.start(), match.end(), match.group()))
        return Hits(matches, total)

    def grep(self, pattern: str, context_lines: int = 0, max_matches: int = 50) -> Hits:
        """Return lines that match a regular expression, or contain it if it is not a valid one.

        Each is `number: line`; in a dict of texts, such as a folder, `name:number: line`, with the
        number in that text. With `context_lines`, each entry also has that many lines before and
        after. `.total` of the list counts all matching lines.
        """
        found: list[str] = []
        total = 0
        for name, text in self._named_texts():
            for number, start, end in matching_lines(text, pattern):
                total += 1
                if len(found) < max_matches:
                    line = (number, start, end)
                    found.append(numbered(text, on_one_line(name), line, context_lines))
        return Hits(found, total)

    def _named_texts(self) -> Iterator[tuple[str, str]]:
        """Yield the texts of a dict with their names; else the whole text without a name."""
        if _holds_texts(self._payload):
            yield from self._payload.items()
        else:
            yield "", self._text

    def search(self, query: str, k: int = 5) -> Passages:
        """Return the `k` passages that fit a question best: dicts with source, line, start, text.

        A passage is a paragraph, or a line of a long one; a word counts in all its forms. "Quoted
        words" in the query must be in a passage. `source` is the key or index of the text, None if
        the payload is one text; `start` and `end` are offsets into that text, None if the item is
        not a text and its JSON was searched.
        """
        from .passages import best_passages  # Few cells need it.

        found = best_passages(self._searchable(), query, k)
        for each in found:
            source = each["source"]
            if source is not None and not isinstance(self._payload[source], str):
                each.update(start=None, end=None)
        return found

    def _searchable(self) -> Iterator[tuple[Any, str]]:
        """Yield each item with its key or index, or the only text."""
        if not isinstance(self._payload, (dict, list, tuple)):
            yield None, self._text
        elif isinstance(self._payload, dict):
            for key, item in self._payload.items():
                yield key, item if isinstance(item, str) else _json({key: item})
        else:
            for index, item in enumerate(self._payload):
                yield index, item if isinstance(item, str) else _json(item)

    def chunk(self, size: int, overlap: int = 0) -> list[tuple[int, int, str]]:
        """Return the whole text in pieces of `size` characters, as (start, end, text)."""
        if size < 1 or not 0 <= overlap < size:
            raise ValueError("chunk needs size >= 1 and 0 <= overlap < size")
        text = self._text
        pieces = []
        start = 0
        while start < len(text):
            end = min(start + size, len(text))
            pieces.append((start, end, text[start:end]))
            if end == len(text):
                break
            start += size - overlap
        return pieces

    def lines(self, start: int = 1, end: int | None = None) -> list[str]:
        """Return lines `start` to `end`, counted from 1, both included."""
        wanted = []
        for number, first, last in line_spans(self._text):
            if end is not None and number > end:
                break
            if number >= start:
                wanted.append(self._text[first:last])
        return wanted

    def documents(self) -> list[Any]:
        """The items of a list, the (name, value) pairs of a dict, or the only text."""
        return self._items()

    def _items(self) -> list[Any]:
        if isinstance(self._payload, dict):
            return list(self._payload.items())
        if isinstance(self._payload, (list, tuple)):
            return list(self._payload)
        return [self._payload]

    def num_documents(self) -> int:
        """How many documents there are."""
        return len(self._payload) if isinstance(self._payload, (dict, list, tuple)) else 1

    def get_document(self, index: int) -> Any:
        """Return the document with that number, counted from 0, or None."""
        return self._items()[index] if 0 <= index < self.num_documents() else None

    def chunk_documents(self, docs_per_chunk: int = 10) -> list[tuple[int, int, list[Any]]]:
        """Return groups of whole documents, as (first, end, documents)."""
        if docs_per_chunk < 1:
            raise ValueError("chunk_documents needs docs_per_chunk >= 1")
        documents = self._items()
        starts = range(0, len(documents), docs_per_chunk)
        groups = [(start, documents[start : start + docs_per_chunk]) for start in starts]
        return [(start, start + len(group), group) for start, group in groups]

    def len_chars(self) -> int:
        """The length of the text in characters."""
        return len(self._text)

    def metadata(self) -> dict[str, Any]:
        """Kind and sizes, never content."""
        lengths = [len(str(document)) for document in self._items()]
        several = isinstance(self._payload, (dict, list, tuple))
        return {
            "context_type": "document_list" if several else "string",
            "total_length": len(self._text),
            "num_documents": len(lengths),
            "document_lengths": lengths,
        }

    def describe(self) -> str:
        """Describe the payload's structure in a few words, never its values."""
        payload = self._payload
        if isinstance(payload, dict):
            keys = ", ".join(str(key)[:40] for key in list(payload)[:_MAX_KEYS_SHOWN])
            more = ", ..." if len(payload) > _MAX_KEYS_SHOWN else ""
            return f"dict with {counted(len(payload), 'key')} ({keys}{more})"
        if isinstance(payload, (list, tuple)):
            kinds = ", ".join(sorted({type(item).__name__ for item in payload}))
            items = counted(len(payload), "item")
            return f"{type(payload).__name__} of {items} ({kinds or 'empty'})"
        if isinstance(payload, str):
            lines = counted(count_lines(payload), "line")
            return f"str of {counted(len(payload), 'character')}, {lines}"
        return type(payload).__name__

    def __len__(self) -> int:
        return len(self._text)

    def __repr__(self) -> str:
        return f"<ctx: {self.describe()}; slice find grep search chunk lines documents describe>"

    def _peek(self, n: int = 2000) -> str:
        """Return the first n characters."""
        return self.slice(0, n)

    def _tail(self, n: int = 2000) -> str:
        """Return the last n characters."""
        return self.slice(len(self._text) - n) if n > 0 else ""

    def _length(self) -> int:
        """Return the length in characters."""
        return len(self._text)


def _text_of(payload: Any) -> str:
    if isinstance(payload, (list, tuple)):
        return "\n\n".join(map(str, payload))
    if _holds_texts(payload):
        return "\n\n".join(f"=== {name} ===\n{text}" for name, text in payload.items())
    if isinstance(payload, dict):
        return _json(payload)
    if isinstance(payload, (bytes, bytearray)):
        return payload.decode("utf-8", "replace")
    return str(payload)


def _holds_texts(payload: Any) -> bool:
    """Return whether the payload is a dict of texts by name, like a folder."""
    if not isinstance(payload, dict) or not payload:
        return False
    return all(isinstance(each, str) for pair in payload.items() for each in pair)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
