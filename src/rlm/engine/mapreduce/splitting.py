"""Where a text is cut: at the best place there is before a piece gets too large."""

__all__ = ["OVERLAP_CHARS", "split", "split_lines"]

OVERLAP_CHARS = 200
SEPARATORS = ("\n\n", "\n", ". ", " ")
STARTS = SEPARATORS[1:]


def split(text: str, size: int, overlap: int = OVERLAP_CHARS) -> list[tuple[int, int]]:
    """Spans of at most `size` characters that end at a paragraph, line, sentence or word.

    Neighbours overlap a little, so that a fact on a border is whole in one of them. They begin as
    well as they end: half a name would be taken for a name.
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
    """The first line, sentence or word that begins there, before the last piece has ended."""
    for separator in STARTS:
        found = text.find(separator, start - len(separator), end - 1)
        if found != -1:
            return found + len(separator)
    return start


def split_lines(lines: list[str], size: int) -> list[range]:
    """Whole lines, by number, together at most `size` characters; no line is in two pieces."""
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
