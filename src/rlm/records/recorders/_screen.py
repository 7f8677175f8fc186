"""A few rows at the bottom of a terminal that are drawn again in place.

Each picture is one write: the old rows are written over, not cleared first, so nothing flickers.
The cursor is hidden and lines do not wrap only within that write. Whenever the program ends, even
by a kill, the terminal is as it was before; and a character whose width nobody agrees on can
shift nothing but its own row.
"""

import os
from typing import TextIO

from rich.cells import cell_len

from rlm.records.recorders._tree import Line

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
WRAP_OFF, WRAP_ON = "\x1b[?7l", "\x1b[?7h"
BOLD, FAINT, USUAL = "\x1b[1m", "\x1b[2m", "\x1b[0m"
CLEAR_ROW, CLEAR_BELOW = "\x1b[K", "\x1b[J"
USUAL_SIZE = 80, 24


class Screen:
    """The rows at the bottom, and lines that stay above them. Not safe for two threads at once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encoding = stream.encoding or "ascii"
        self._columns = USUAL_SIZE[0]
        self._widths: list[int] = []
        self._usable = True
        self.is_unicode = self._encoding.lower().replace("-", "") == "utf8"

    def size(self) -> tuple[int, int]:
        """Columns and rows as they are now: terminals are resized while runs go on."""
        try:
            columns, rows = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return USUAL_SIZE
        return (columns, rows) if columns > 0 and rows > 0 else USUAL_SIZE

    def draw(self, above: list[str], lines: list[Line]) -> None:
        """Lines that stay, then the rows as they should be now.

        A stream that can't be written to any more is left alone: progress never ends a run.
        """
        if not self._usable or not (above or lines or self._widths):
            return
        columns, _ = self.size()
        kept = "".join(f"{line}\n" for line in above)
        drawn = "\n".join(_styled(line) + CLEAR_ROW for line in lines)
        afresh = CLEAR_BELOW if above or columns != self._columns else ""
        picture = (
            f"{HIDE_CURSOR}{self._to_first_row(columns)}{afresh}{kept}"
            f"{WRAP_OFF}{drawn}{CLEAR_BELOW}{WRAP_ON}{SHOW_CURSOR}"
        )
        self._columns, self._widths = columns, [cell_len(line.plain) for line in lines]
        try:
            self._stream.write(picture.encode(self._encoding, "replace").decode(self._encoding))
            self._stream.flush()
        except (OSError, ValueError):
            self._usable = False

    def _to_first_row(self, columns: int) -> str:
        """Up over the old rows. A terminal that was made narrower has wrapped the long ones."""
        narrower = columns < self._columns
        rows = sum(-(-max(1, width) // columns) if narrower else 1 for width in self._widths)
        return "\r" + (f"\x1b[{rows - 1}A" if rows > 1 else "")


def _styled(line: Line) -> str:
    text = f"{BOLD}{line.text}{USUAL}" if line.bold else line.text
    return f"{text}{FAINT}{line.faint}{USUAL}" if line.faint else text
