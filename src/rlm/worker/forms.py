"""The layout of a shared context in its file, which the host writes and workers map.

Characters are stored as CPython stores them, in one of four forms, so that they need no decoding.
The characters of every text are followed by a zero of the same width.

    kind        the file                            the layout besides "kind"
    text, json  characters                          "form", "chars"
    bytes       bytes, a zero                       "size"
    texts       characters of each, names, table    "count", "table", "names", "names_bytes"

A text is always in the narrowest form that can hold it: for CPython, texts in different forms
are different.
"""

from __future__ import annotations

import sys
from array import array
from itertools import compress

__all__ = ["ALIGNMENT", "ASCII", "FORMS", "LATIN_1", "SHORT", "UCS_2", "UCS_4", "WIDTHS", "Table"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ASCII, LATIN_1, UCS_2, UCS_4 = range(4)
FORMS = ("ascii", "latin-1", "ucs-2", "ucs-4")
WIDTHS = (1, 1, 2, 4)
SHORT = 4
"""The form, in a table, of a text of fewer than two characters: CPython has a single copy."""

ALIGNMENT = 8
"""Every text begins at a multiple of this, and so does the table."""


class Table:
    """The offset, length and form of each of many texts.

    A SHORT text is not in the file: its offset is the code point of its only character. In the
    file, all offsets come first, then all lengths, then a byte for each form.
    """

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.chars = array("Q")
        self.forms = bytearray()

    def add(self, offset: int, chars: int, form: int) -> None:
        """Append a text."""
        self.offsets.append(offset)
        self.chars.append(chars)
        self.forms.append(form)

    def columns(self) -> Iterator[bytes]:
        """Yield the columns of the table, as they are in the file."""
        yield _little_endian(self.offsets).tobytes()
        yield _little_endian(self.chars).tobytes()
        yield bytes(self.forms)

    @classmethod
    def parse(cls, data: bytes, count: int) -> Table:
        """Read the bytes of `columns`."""
        if len(data) != 17 * count:
            raise ValueError("the table of a shared context is incomplete")
        table = cls()
        table.offsets = _little_endian(array("Q", data[: 8 * count]))
        table.chars = _little_endian(array("Q", data[8 * count : 16 * count]))
        table.forms = bytearray(data[16 * count :])
        return table

    def short_text(self, position: int) -> str:
        """Return the text at a position whose form is SHORT."""
        return chr(self.offsets[position]) if self.chars[position] else ""

    def of_form(self, form: int) -> tuple[Sequence[int], array[int], array[int]]:
        """Return the positions, offsets and lengths of the texts of one form."""
        count = self.forms.count(form)
        if count in {0, len(self.forms)}:  # The usual case.
            return range(count), self.offsets[:count], self.chars[:count]
        chosen = self.forms.translate(bytes(code == form for code in range(256)))
        offsets = array("Q", compress(self.offsets, chosen))
        chars = array("Q", compress(self.chars, chosen))
        return list(compress(range(len(chosen)), chosen)), offsets, chars


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
