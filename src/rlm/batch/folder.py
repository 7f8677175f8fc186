"""The file of answers of a batch, and the state beside it that lets a batch continue."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rlm.batch.outcomes import RowTable
from rlm.errors import ConfigError
from rlm.records.journal import Places
from rlm.records.journal.database import Lock

__all__ = ["BatchFolder", "OrderedAnswers"]

FINAL = ("answered", "failed")


class OrderedAnswers:
    """The file of answers, in the order of the rows; later rows wait in the table."""

    def __init__(self, path: Path, table: RowTable) -> None:
        self._file: BinaryIO = path.open("wb")
        self._table = table
        self.next_number = 0
        self.advance()

    def advance(self) -> None:
        """Write every answer that has no unfinished row before it."""
        written = False
        while (entry := self._table.get(self.next_number)) and entry.status in FINAL:
            self._file.write(f"{entry.outcome}\n".encode("ascii"))
            self.next_number += 1
            written = True
        if written:
            self._file.flush()

    def close(self) -> None:
        self._file.close()


class BatchFolder:
    """`answers.jsonl.state`: a table of outcomes, and the journals of unfinished rows."""

    def __init__(self, out: Path) -> None:
        if out.is_dir():
            raise ConfigError(f"{out} is a folder: name a file for the answers with --out")
        self.out = out
        self.path = out.with_name(f"{out.name}.state")
        self.journals = Places(self.path / "journal")

    @contextmanager
    def opened(self, *, overwrite: bool = False) -> Generator[RowTable, None, None]:
        """Open the table for one process at a time; never overwrite a file that is not a batch."""
        if self.out.exists() and not self.path.exists() and not overwrite:
            raise ConfigError(
                f"{self.out} exists, but no batch can continue there: choose another --out, or "
                "pass --overwrite"
            )
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = Lock(self.path / "lock")
        if not lock.take():
            raise ConfigError(f"process {lock.holder()} is writing {self.out}; wait for it")
        try:
            if overwrite:
                self._clear()
            table = RowTable(self.path / "rows.sqlite")
            try:
                yield table
            finally:
                table.close()
        finally:
            lock.release()

    @contextmanager
    def answers(self, table: RowTable) -> Generator[OrderedAnswers, None, None]:
        """Open the file of answers, rewritten from the table."""
        answers = OrderedAnswers(self.out, table)
        try:
            yield answers
        finally:
            answers.close()

    def _clear(self) -> None:
        for each in self.path.glob("rows.sqlite*"):
            each.unlink()
        self.journals.clear()
