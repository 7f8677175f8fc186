"""Hebrew and Arabic text in the order in which it is read.

A PDF stores glyphs where they are printed. Programs that draw a line from left to right store the
words of these scripts backwards.
"""

import unicodedata

__all__ = ["in_reading_order"]

_RIGHT_TO_LEFT = frozenset(("R", "AL"))
_LEFT_TO_RIGHT = frozenset(("L", "EN", "AN"))
_BETWEEN = frozenset(("ES", "ET", "CS"))
"""Signs inside numbers, such as the point in 1.5."""

_MIRRORED = str.maketrans("()[]{}<>«»", ")(][}{><»«")


def in_reading_order(printed: str) -> str:
    """Return a line, given as it is printed from left to right, in reading order.

    Only a line mainly in these scripts changes; numbers and foreign words keep their order.
    """
    if printed.isascii():
        return printed
    kinds = [unicodedata.bidirectional(char) for char in printed]
    letters = [kind for kind in kinds if kind in _RIGHT_TO_LEFT or kind == "L"]
    if 2 * sum(kind in _RIGHT_TO_LEFT for kind in letters) <= len(letters):
        return printed
    pieces: list[str] = []
    start = 0
    while start < len(printed):
        end = start + 1
        if kinds[start] in _LEFT_TO_RIGHT:
            end = _end_of_run(kinds, start)
            pieces.append(printed[start:end])
        else:
            pieces.append(printed[start:end].translate(_MIRRORED))
        start = end
    return "".join(reversed(pieces))


def _end_of_run(kinds: list[str], start: int) -> int:
    """Return the end of a number or of foreign words, without signs that merely follow."""
    end = at = start + 1
    while at < len(kinds) and kinds[at] not in _RIGHT_TO_LEFT:
        at += 1
        if kinds[at - 1] in _LEFT_TO_RIGHT:
            end = at
        elif kinds[at - 1] not in _BETWEEN and kinds[at - 1] not in {"WS", "ON", "NSM"}:
            break
    return end
