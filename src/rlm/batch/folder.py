"""What a batch keeps beside its file of answers, so that it can go on."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rlm.batch.ordered import OrderedAnswers
from rlm.batch.table import RowTable
from rlm.errors import ConfigError
from rlm.records.journal import Places
from rlm.records.journal.database import Lock

__all__ = ["BatchFolder"]


class BatchFolder:
    """`answers.jsonl.state`: a table of outcomes, and the journals of rows that are not done."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.path = out.with_name(f"{out.name}.state")
        self.journals = Places(self.path / "journal")

    @contextmanager
    def opened(self, *, overwrite: bool = False) -> Generator[RowTable, None, None]:
        """The table, for one process at a time. A file that is no batch's is not overwritten."""
        if self.out.exists() and not self.path.exists() and not overwrite:
            raise ConfigError(
                f"{self.out} exists, and no batch goes on there: choose another --out, or pass "
                "--overwrite"
            )
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = Lock(self.path / "lock")
        if not lock.take():
            raise ConfigError(f"process {lock.holder()} is at work on {self.out}; wait for it")
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
        """The file of answers, written anew from the table and then on."""
        answers = OrderedAnswers(self.out, table)
        try:
            yield answers
        finally:
            answers.close()

    def _clear(self) -> None:
        for each in self.path.glob("rows.sqlite*"):
            each.unlink()
        self.journals.clear()
