"""One citation, how models are asked for them, and how a list of them is printed."""

from collections.abc import Iterable

from msgspec import Struct

__all__ = ["CITE_LINE", "MAX_TEXT_CHARS", "Citation", "footnotes", "warning_of"]

CITE_LINE = (
    "Cite your sources: before you answer, call `cite(start, end)` with offsets into `context`, "
    '`cite(start, end, name)` for one text of a dict or list, or `cite("verbatim quote")`, for '
    "every place that supports the answer. Without a REPL, quote the places word for word in “…”."
)
MAX_TEXT_CHARS = 2_000
"""How much of the text of a place a citation holds."""

FOOTNOTE_CHARS = 300
CUT = " […]"


# Its JSON has all fields, wherever it is sent or printed: so defaults are not omitted.
class Citation(Struct, frozen=True):
    """A place in the context, and its verbatim text.

    `file` names the file or document; it is None for a plain text. `start` and `end` are offsets in
    characters; lines count from 1. `places` is how often a quoted text occurs; the first occurrence
    is cited. `text` lacks the last `cut_chars` characters of a long place.
    """

    file: str | None
    start: int
    end: int
    start_line: int
    end_line: int
    text: str
    places: int = 1
    cut_chars: int = 0

    @property
    def label(self) -> str:
        """The place in a few characters: `report.txt:12–14`."""
        is_one = self.end_line == self.start_line
        lines = f"{self.start_line}" if is_one else f"{self.start_line}–{self.end_line}"
        if self.file is None:
            return f"line {lines}" if is_one else f"lines {lines}"
        return f"{self.file}:{lines}"

    def covers(self, other: "Citation") -> bool:
        """Return whether the other place lies within this one."""
        return self.file == other.file and self.start <= other.start and other.end <= self.end


def footnotes(citations: Iterable[Citation]) -> list[str]:
    """Return a line for each citation: `[1] report.txt:12–14 “…”`."""
    return [f"[{n}] {each.label} “{_short(each)}”" for n, each in enumerate(citations, 1)]


def warning_of(unsupported: int) -> str:
    """Return a warning about quotes that the context does not contain."""
    if unsupported == 1:
        return "1 quote is not in the context: don't rely on it."
    return f"{unsupported:,} quotes are not in the context: don't rely on them."


def _short(citation: Citation) -> str:
    words = " ".join(citation.text.split())
    is_cut = citation.cut_chars > 0 or len(words) > FOOTNOTE_CHARS
    return words[:FOOTNOTE_CHARS].rstrip() + CUT if is_cut else words
