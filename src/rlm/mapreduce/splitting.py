"""Where a text is cut: at the best place there is before a piece gets too large."""

__all__ = ["OVERLAP_CHARS", "split", "split_lines"]

OVERLAP_CHARS = 200
SEPARATORS = ("\n\n", "\n", ". ", " ")


def split(text: str, size: int, overlap: int = OVERLAP_CHARS) -> list[tuple[int, int]]:
    """Spans of at most `size` characters that end at a paragraph, line, sentence or word.

    Neighbours overlap a little, so that a fact on a border is whole in one of them.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    while start < len(text):
        end = _good_end(text, start, start + size)
        spans.append((start, end))
        if end >= len(text):
            break
        start = max(end - min(overlap, size // 4), start + 1)
    return spans


def _good_end(text: str, start: int, end: int) -> int:
    if end >= len(text):
        return len(text)
    for separator in SEPARATORS:
        found = text.rfind(separator, start + (end - start) // 2, end)
        if found != -1:
            return found + len(separator)
    return end


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
