"""A terminal small enough to trust: it obeys only what the live tree writes, and fails on more."""

import re
import unicodedata

from rich.cells import cell_len

OURS = re.compile(r"\x1b\[(?:\?25[lh]|\?7[lh]|\d*A|[KJ]|[012]m)|\r|\n")
SEQUENCE = re.compile(r"\x1b\[(\??)(\d*)([A-Za-z])")


class TinyTerminal:
    """Rows of cells, a cursor, and lines that were scrolled away. It wraps if it is set to."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.screen: list[list[str]] = [[]]
        self.gone: list[str] = []
        self.row = self.column = 0
        self.wraps = self.cursor_shown = True

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            if (found := SEQUENCE.match(text, at)) is not None:
                self._obey(*found.groups())
                at = found.end()
                continue
            self._write(text[at])
            at += 1

    def lines(self) -> list[str]:
        """All that can be read, also by scrolling back."""
        shown = [*self.gone, *("".join(row).rstrip() for row in self.screen)]
        while shown and not shown[-1]:
            shown.pop()
        return shown

    def _obey(self, private: str, number: str, letter: str) -> None:
        order = f"{private}{number}{letter}"
        if letter == "A":
            self.row = max(0, self.row - int(number or 1))
        elif order in {"K", "J"}:
            del self.screen[self.row][self.column :]
            if order == "J":
                del self.screen[self.row + 1 :]
        elif private == "?" and number == "7":
            self.wraps = letter == "h"
        elif private == "?" and number == "25":
            self.cursor_shown = letter == "h"
        else:
            assert order in {"0m", "1m", "2m"}, f"an order nobody gave: {order!r}"

    def _write(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self._next_row()
        else:
            assert unicodedata.category(character) not in {"Cc", "Cs"}, repr(character)
            self._put(character, cell_len(character))

    def _put(self, character: str, width: int) -> None:
        if self.column + width > self.columns and self.wraps:
            self._next_row()
        self.column = min(self.column, self.columns - width)
        row = self.screen[self.row]
        if width == 0:  # it joins what stands before it
            row[-1:] = [row[-1] + character] if row else []
            return
        row += [" "] * (self.column - len(row))
        row[self.column : self.column + max(1, width)] = [character, *[""] * (width - 1)]
        self.column += width

    def _next_row(self) -> None:
        self.column = 0
        self.row += 1
        if self.row == len(self.screen):
            self.screen.append([])
        if len(self.screen) > self.rows:
            self.gone.append("".join(self.screen.pop(0)).rstrip())
            self.row -= 1


def shown(written: str, columns: int, rows: int) -> list[str]:
    """What can be read in a terminal of that size once all that is written to it."""
    terminal = TinyTerminal(columns, rows)
    terminal.feed(written)
    assert terminal.wraps
    assert terminal.cursor_shown
    return terminal.lines()
