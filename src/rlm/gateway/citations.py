"""Citations of a run: requested in plain words, and accepted only if they are verbatim.

The lines that a model names are not enough: each quote is looked up in the bytes that the run got.
Quotes that are not found are dropped and counted. What its cells cited, and the answer's quotes
that the engine found, are passed on in the same form, with the bytes of their lines.
"""

import hashlib
import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

from msgspec import Struct, field

from rlm.citations import Citation
from rlm.engine.answer_types import AnswerMismatch, answer_type
from rlm.gateway.files import MAX_BYTES, MAX_LINES, Loaded
from rlm.gateway.ledger import Answer
from rlm.results import Submission

__all__ = ["Cited", "CitedFiles", "claims_of", "read_answer", "with_instructions"]

MAX_CITATIONS = 50
MAX_SEARCHED_BYTES = 4 << 30
"""How far all quotes of an answer together are searched for beyond the lines that are named."""

_BLOCK = 1 << 16

_INSTRUCTIONS = """{query}

The files are in `context`, a dict from name to text. Hand in a dict, in a cell:
FINAL({{"answer": text, "citations": [
    {{"file": name, "start_line": 1, "end_line": 2, "quote": text}}]}})
Each quote is copied from its file character by character and is at most a few lines long; take it
from the text with code. Lines count from 1. With nothing to quote, hand in the text alone."""


class Claim(Struct, frozen=True):
    """A citation as a model gives it."""

    file: str = ""
    quote: str = ""
    start_line: int | None = None
    end_line: int | None = None


class Cited(Struct, frozen=True):
    """An answer and its citations, as a model gives them."""

    answer: str
    citations: list[Claim] = field(default_factory=list)


class _Loose(Struct, frozen=True):
    """The same, from a less careful model: `citations` may be anything."""

    answer: str | int | float | bool | list[Any] | dict[str, Any]
    citations: Any = None


def with_instructions(query: str) -> str:
    return _INSTRUCTIONS.format(query=query)


def read_answer(text: str, as_json: str | None) -> Cited:
    """Parse what a run submitted; any other form is an answer without citations."""
    submission = Submission(text, "answer", as_json)
    try:
        found: Cited = answer_type(Cited).parse(submission)
    except AnswerMismatch:
        return _read_loosely(submission)
    return found


def _read_loosely(submission: Submission) -> Cited:
    try:
        found: _Loose = answer_type(_Loose).parse(submission)
    except AnswerMismatch:
        return Cited(submission.text)
    given = found.citations if isinstance(found.citations, list) else []
    kind, claims = answer_type(Claim), [Claim()] * len(given)  # These will count as dropped.
    for number, each in enumerate(given[:MAX_CITATIONS]):
        with suppress(AnswerMismatch):
            claims[number] = kind.parse(Submission("", "answer", _json(each)))
    return Cited(found.answer if isinstance(found.answer, str) else _json(found.answer), claims)


def claims_of(citations: Sequence[Citation]) -> list[Claim]:
    """Return what the engine found as claims, to be looked up in bytes like all others."""
    return [Claim(each.file or "", each.text, each.start_line, each.end_line) for each in citations]


class CitedFiles:
    """The files of one run, by the names that the run used."""

    def __init__(self, files: Mapping[str, Loaded]) -> None:
        self._files = files
        self._lines: dict[str, _Lines] = {}
        self._known: dict[Claim, Answer | None] = {}
        self._searched_bytes = 0

    def checked(self, claims: Sequence[Claim], max_bytes: int) -> tuple[list[Answer], int]:
        """Return the true citations with correct lines, and the number of the others.

        All quotes together have at most `max_bytes`; the rest are also dropped.
        """
        found: list[Answer] = []
        for claim in claims[:MAX_CITATIONS]:
            if claim not in self._known:
                self._known[claim] = self._citation(claim)
            citation = self._known[claim]
            if citation is None or citation in found:
                continue
            max_bytes -= len(citation["quote"].encode())
            if max_bytes < 0:
                break
            found.append(citation)
        return found, len(claims) - len(found)

    def _citation(self, claim: Claim) -> Answer | None:
        name = self._find_name(claim.file)
        if name is None or not claim.quote.strip():
            return None
        file = self._files[name]
        lines = self._lines.setdefault(name, _Lines(file.data))
        for quote in _spellings(claim.quote, file.data):
            at = self._place(lines, quote, claim)
            if at is not None:
                first, last = lines.number_at(at), lines.number_at(at + len(quote) - 1)
                return {
                    "handle": file.handle.id,
                    "start_line": first,
                    "end_line": last,
                    "sha256": hashlib.sha256(lines.between(first, last)).hexdigest(),
                    "quote": quote.decode(),
                    "version": file.version,
                }
        return None

    def _find_name(self, name: str) -> str | None:
        """Find the file by its name, its handle, or the end of its name."""
        if name in self._files:
            return name
        by_handle = [key for key, file in self._files.items() if file.handle.id == name]
        by_end = [key for key in self._files if name and key.endswith(f"/{name.lstrip('./')}")]
        for found in (by_handle, by_end, list(self._files)):
            if len(found) == 1:
                return found[0]
        return None

    def _place(self, lines: "_Lines", quote: bytes, claim: Claim) -> int | None:
        """Find the quote in the named lines, or at its only occurrence."""
        data = lines.data
        first = max(1, claim.start_line or 0)
        last = max(first, claim.end_line or first)
        if claim.start_line is not None and (start := lines.start_of(first)) is not None:
            at = data.find(quote, start, lines.end_of(last))
            if at >= 0:
                return at
        self._searched_bytes += len(data)
        if self._searched_bytes > MAX_SEARCHED_BYTES:
            return None
        at = data.find(quote)
        return at if at >= 0 and data.find(quote, at + 1) < 0 else None


class _Lines:
    """The numbers and places of lines, of which only the number in each block is stored."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        counts = (data.count(b"\n", at, at + _BLOCK) for at in range(0, len(data), _BLOCK))
        self._before = list(accumulate(counts, initial=0))
        """The number of line ends before each block, and in all."""

    def number_at(self, offset: int) -> int:
        block = offset // _BLOCK
        return self._before[block] + self.data.count(b"\n", block * _BLOCK, offset) + 1

    def start_of(self, number: int) -> int | None:
        """Return where a line begins; None if there is no such line."""
        ends = number - 1
        if ends > self._before[-1]:
            return None
        if ends == 0:
            return 0
        block = bisect_left(self._before, ends) - 1
        at = block * _BLOCK - 1
        for _ in range(ends - self._before[block]):
            at = self.data.find(b"\n", at + 1)
        return at + 1 if at + 1 < len(self.data) else None

    def end_of(self, number: int) -> int:
        start = self.start_of(number + 1)
        return len(self.data) if start is None else start

    def between(self, first: int, last: int) -> bytes:
        """Return the bytes of the lines from the first to the last."""
        return self.data[self.start_of(first) : self.end_of(last)]


def _spellings(quote: str, data: bytes) -> list[bytes]:
    """Return variants of the quote: as it is, stripped, and with the line ends of the file."""
    found = []
    for text in (quote, quote.strip("\r\n"), quote.strip()):
        whole = _bounded(text)
        found.append(whole)
        if b"\r\n" in data:
            found.append(whole.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
    return [each for each in dict.fromkeys(found) if each and len(each) <= MAX_BYTES]


def _bounded(text: str) -> bytes:
    """Cut a text to the lines and bytes that a span may have, at a whole character."""
    text = "\n".join(text.split("\n")[:MAX_LINES])
    return text.encode("utf-8", "replace")[:MAX_BYTES].decode("utf-8", "ignore").encode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
