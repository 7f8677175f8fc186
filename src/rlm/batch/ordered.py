"""The file of answers: in the order of the rows, each written once all before it are there."""

from pathlib import Path
from typing import BinaryIO

from rlm.batch.table import RowTable

__all__ = ["OrderedAnswers"]

FINAL = ("answered", "failed")


class OrderedAnswers:
    """What waits for an earlier row waits in the table, not in memory."""

    def __init__(self, path: Path, table: RowTable) -> None:
        self._file: BinaryIO = path.open("wb")
        self._table = table
        self.next_number = 0
        self.advance()

    def advance(self) -> None:
        """Write all that can be written now."""
        written = False
        while (entry := self._table.get(self.next_number)) and entry.status in FINAL:
            self._file.write(f"{entry.outcome}\n".encode("ascii"))
            self.next_number += 1
            written = True
        if written:
            self._file.flush()

    def close(self) -> None:
        self._file.close()
