"""Cut a text into pieces, and group the notes that models make of them."""

from collections.abc import Sequence

__all__ = ["NOT_FOUND", "OVERLAP_CHARS", "groups_of", "notes_of", "split", "split_lines"]

OVERLAP_CHARS = 200
SEPARATORS = ("\n\n", "\n", ". ", " ")
STARTS = SEPARATORS[1:]


def split(text: str, size: int, overlap: int = OVERLAP_CHARS) -> list[tuple[int, int]]:
    """Return spans of at most `size` characters that end at a paragraph, line, sentence or word.

    Neighbours overlap a little, so that a fact at a border is whole in one of them. They also
    begin at a line, sentence or word, because half a name would be read as a name.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    while start < len(text):
        end = _good_end(text, start, start + size)
        spans.append((start, end))
        if end >= len(text):
            break
        start = _good_start(text, max(end - min(overlap, size // 4), start + 1), end)
    return spans


def _good_end(text: str, start: int, end: int) -> int:
    if end >= len(text):
        return len(text)
    for separator in SEPARATORS:
        found = text.rfind(separator, start + (end - start) // 2, end)
        if found != -1:
            return found + len(separator)
    return end


def _good_start(text: str, start: int, end: int) -> int:
    """Return the first line, sentence or word that begins before the end of the last piece."""
    for separator in STARTS:
        found = text.find(separator, start - len(separator), end - 1)
        if found != -1:
            return found + len(separator)
    return start


def split_lines(lines: list[str], size: int) -> list[range]:
    """Return ranges of whole lines with at most `size` characters; no line is in two pieces."""
    pieces: list[range] = []
    start = used = 0
    for number, line in enumerate(lines):
        if number > start and used + len(line) + 1 > size:
            pieces.append(range(start, number))
            start, used = number, 0
        used += len(line) + 1
    if start < len(lines):
        pieces.append(range(start, len(lines)))
    return pieces


NOT_FOUND = "NOT FOUND"
NUMBERING_CHARS = 16


def notes_of(replies: Sequence[str]) -> list[str]:
    """Return the replies that found something, in order."""
    return [text for text in replies if text and not text.upper().startswith(NOT_FOUND)]


def groups_of(notes: Sequence[str], size: int) -> list[str]:
    """Join notes into prompts that fit.

    Notes are cut only if otherwise no two would fit in one prompt and merging would never end.
    """
    groups = _joined(notes, size, size - NUMBERING_CHARS)
    if 1 < len(groups) == len(notes):
        groups = _joined(notes, size, size // 2 - NUMBERING_CHARS)
    return groups


def _joined(notes: Sequence[str], size: int, most: int) -> list[str]:
    """Join notes in order, with at most `most` characters of each."""
    groups: list[str] = []
    for number, note in enumerate(notes, 1):
        entry = f"[{number}] {note[:most]}"
        if groups and len(groups[-1]) + len(entry) + 2 <= size:
            groups[-1] += f"\n\n{entry}"
        else:
            groups.append(entry)
    return groups
