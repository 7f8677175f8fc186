"""Any context as text, and its units: records, sentences, lines. Runs INSIDE the sandbox.

The offline model sends this source in its cell, so it needs only the standard library.
"""

import json
import re
from collections.abc import Iterator

__all__ = [
    "CLIP_CHARS",
    "MARGIN_CHARS",
    "RECORD_CHARS",
    "WORD",
    "Units",
    "as_text",
    "folded",
    "stem",
]

CLIP_CHARS = 400
RECORD_CHARS = 2_000
MARGIN_CHARS = 300
NEIGHBOURS = 4
RECORD_STARTS = ("{", "[", "<", '"')
FIELD_MARK = " | "
OPENING, CLOSING = ("{", "["), ("}", "]")

ABBREVIATIONS = {
    *("approx", "co", "dr", "e.g", "etc", "fig", "i.e", "inc", "jr", "ltd", "mr", "mrs", "ms"),
    *("no", "nos", "nr", "prof", "sr", "st", "vol", "vs"),
}
"""Words whose full stop ends no sentence."""

DANGLING = {
    *("a", "an", "and", "are", "as", "by", "equals", "for", "from", "in", "is", "of", "on"),
    *("the", "to", "was", "were", "with"),
}
"""Words that no line ends with, unless it goes on in the next."""

WORD = re.compile(r"[^\W_]+(?:['’][a-z]+)?")
BREAK = re.compile(r"\n|[.!?][\"'”’)\]]*\s+(?=[^a-z\s])")


def as_text(context: object) -> str:
    """A text form of any context: one line for a flat record, lines for everything else."""
    if isinstance(context, str):
        return context
    if isinstance(context, (bytes, bytearray)):
        return bytes(context).decode("utf-8", "replace")
    if isinstance(context, dict):
        if not any(isinstance(value, (dict, list, tuple, str)) for value in context.values()):
            return json.dumps(context, ensure_ascii=False, default=str)
        lines = [f"{key}: {as_text(value)}" for key, value in context.items()]
        short = sum(map(len, lines)) < CLIP_CHARS and not any("\n" in line for line in lines)
        return (FIELD_MARK if short else "\n").join(lines)
    if isinstance(context, (list, tuple)):
        return "\n".join(as_text(item) for item in context)
    return str(context)


def folded(text: str) -> str:
    """Lower case of the same length: U+0130 is the one character that would grow."""
    return text.replace("\u0130", "I").lower()


def stem(word: str) -> str:
    """A word without its commonest endings: crude, but alike in question and text."""
    word = re.sub(r"['’].*", "", word.lower())
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            word = word[: -len(ending)]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


class Units:
    """The units of one text, found around a place in it, however long the text is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def around(self, start: int, end: int) -> tuple[int, int]:
        """The record, sentence or line that holds a span; wrapped lines are read as one."""
        first, last = self.line(start, end)
        if self.text.startswith(RECORD_STARTS, first) or FIELD_MARK in self.text[first:last]:
            return first, last
        low, high = self._sentence(start, end, wrapped=True)
        if high - low > CLIP_CHARS + (end - start):
            low, high = self._sentence(start, end, wrapped=False)
        return low, high

    def line(self, start: int, end: int) -> tuple[int, int]:
        floor, ceiling = max(0, start - RECORD_CHARS), min(len(self.text), end + RECORD_CHARS)
        first = self.text.rfind("\n", floor, start) + 1 or floor
        last = self.text.find("\n", end, ceiling)
        return first, ceiling if last < 0 else last

    def _sentence(self, start: int, end: int, *, wrapped: bool) -> tuple[int, int]:
        low, high = max(0, start - CLIP_CHARS), min(len(self.text), end + CLIP_CHARS)
        for match in BREAK.finditer(self.text, low, start):
            if self._is_break(match, wrapped):
                low = match.end()
        for match in BREAK.finditer(self.text, end, high):
            if self._is_break(match, wrapped):
                return low, match.end()
        return low, high

    def _is_break(self, match: "re.Match[str]", wrapped: bool) -> bool:
        at = match.start()
        words = self.text[max(0, at - 16) : at].lower().split()
        last = words[-1].strip("(\"'") if words else ""
        if match[0] != "\n":
            return last not in ABBREVIATIONS and len(last) > 1
        following = self.text[match.end() : match.end() + 1]
        after = self.text[match.end() : match.end() + 16].partition(" ")[0]
        flows = following.islower() and (last[-1:].islower() or last[-1:] == ",")
        dangles = following.isalnum() and (last in DANGLING or after in DANGLING)
        return not wrapped or not (flows or dangles)

    def passage(self, start: int, end: int) -> str:
        """A unit with what stands around it; a row of a table also with the table's header."""
        low, high = max(0, start - MARGIN_CHARS), min(len(self.text), end + MARGIN_CHARS)
        passage = self.text[low:high].strip()
        header = self.text[: self.text.find("\n", 0, CLIP_CHARS) + 1].strip()
        row = self.text[start:end]
        table = any(header.count(mark) == row.count(mark) >= 2 for mark in ",;|\t")
        return f"{header}\n{passage}" if table and header not in passage else passage

    def following(self, edge: int) -> Iterator[tuple[int, int]]:
        """The next few units, as far as the same object, if it is one, goes on."""
        for _ in range(NEIGHBOURS):
            edge += len(self._indent(edge))
            if edge >= len(self.text) or self.text.startswith(CLOSING, edge):
                return
            start, edge = edge, self.around(edge, edge + 1)[1]
            yield start, edge

    def preceding(self, edge: int) -> Iterator[tuple[int, int]]:
        """The fields before this one in a printed JSON object; nothing anywhere else."""
        if not self.text.startswith('"', edge + len(self._indent(edge))):
            return
        for _ in range(NEIGHBOURS):
            start = self.line(max(0, edge - 1), edge)[0] if edge else 0
            if start >= edge or self.text[start:edge].strip().startswith(OPENING):
                return
            yield start, edge
            edge = start

    def _indent(self, start: int) -> str:
        line = self.text[start : start + CLIP_CHARS]
        return line[: len(line) - len(line.lstrip())]
