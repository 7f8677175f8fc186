"""The results of a batch as plain values, for the viewer: rows with their answers, and totals.

While a batch is in progress, its table holds more than the file of answers, which is in the order
of the rows. Both may come from elsewhere: every line is decoded with limits.
"""

import sqlite3
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from rlm.batch.folder import BatchFolder
from rlm.errors import ConfigError
from rlm.records.journal.database import Lock, check_plain

__all__ = ["BatchRuns"]

MAX_ROWS = 5_000
MAX_CHARS = 1_000
MAX_LINE_BYTES = 10_000_000
GOLD = ("gold", "expected")
"""The keys of a row's `meta` that hold the right answer."""


class _Line(Struct, frozen=True):
    """The fields of a line of answers that are shown."""

    row: int
    stop_reason: str
    line: int | None = None
    id: str | int | None = None
    answer: Any = None
    error: str | None = None
    run_id: str = ""
    tokens: Annotated[int, Meta(ge=0, le=1 << 50)] = 0
    cost_usd: float | None = None
    seconds: float = 0.0
    meta: Any = None


class BatchRuns(Struct, frozen=True):
    """One file of answers, or two to compare, with the journals that were kept."""

    out: Path
    other: Path | None = None

    @classmethod
    def is_at(cls, out: Path) -> bool:
        """Return whether a batch wrote this file: its state is beside it, or its lines say so."""
        if (BatchFolder(out).path / "rows.sqlite").is_file():
            return True
        try:
            with out.open("rb") as file:
                return _decoded(file.readline(MAX_LINE_BYTES)) is not None
        except OSError:
            return False

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.out,) if self.other is None else (self.out, self.other)

    @property
    def title(self) -> str:
        return " and ".join(out.name for out in self.files)

    @property
    def archive(self) -> None:
        """None: a run of a batch continues only with the batch."""
        return

    def paths(self) -> list[Path]:
        """Return the journals of rows in progress, and of others that were kept."""
        found = []
        for out in self.files:
            found += [run.path for run in BatchFolder(out).journals.listed()]
        return found

    def watched(self) -> list[Path]:
        """Return the files that change with the results."""
        tables = [BatchFolder(out).path / "rows.sqlite" for out in self.files]
        return [*self.files, *tables]

    def results(self) -> dict[str, Any]:
        about, figures, samples = [], [], list[dict[str, Any]]()
        left_out = 0
        for number, out in enumerate(self.files):
            found, seen = _Totals(), Counter[str | int | None]()
            for line in _lines(out):
                found.take(line)
                if len(samples) < MAX_ROWS:
                    seen[line.id] += 1  # Rows may share an id.
                    samples.append(_sample(number, line, seen[line.id] if line.id else 1))
                else:
                    left_out += 1
            about.append(found.about(out))
            figures.append(found.figures(number))
        return {
            "kind": "batch",
            "folders": about,
            "figures": figures,
            "samples": samples if self.other is None else [_without_run(each) for each in samples],
            "left_out": left_out,
        }


def _without_run(sample: dict[str, Any]) -> dict[str, Any]:
    """Remove the run's id: two batches over the same rows give their runs the same ids."""
    return {**sample, "run_id": ""}


class _Totals:
    """Sums over all rows of a file."""

    def __init__(self) -> None:
        self.rows = self.failed = self.judged = self.hits = self.tokens = 0
        self.seconds = 0.0
        self.costs: list[float | None] = []

    def take(self, line: _Line) -> None:
        self.rows += 1
        self.failed += line.stop_reason == "error"
        self.tokens += line.tokens
        self.seconds += line.seconds
        self.costs.append(line.cost_usd)
        score = _score(line)
        self.judged += score is not None
        self.hits += score == 1.0

    def about(self, out: Path) -> dict[str, Any]:
        known = [cost for cost in self.costs if cost is not None]
        settings = _settings(out)
        return {
            "name": out.name,
            "model": str(settings.get("model", ""))[:MAX_CHARS],
            "sub_model": str(settings.get("sub_model", ""))[:MAX_CHARS],
            "engine": "",
            "live": Lock(BatchFolder(out).path / "lock").is_taken(),
            "cost_usd": sum(known) if known else None,
        }

    def figures(self, number: int) -> dict[str, Any]:
        rows = max(1, self.rows)
        known = [cost for cost in self.costs if cost is not None]
        score = 100.0 * self.hits / self.judged if self.judged else None
        return {
            "folder": number,
            "task": "rows",
            "size": 0,
            "size_words": "",
            "method": "",
            "samples": self.rows,
            "impossible": 0,
            "failed": self.failed,
            "hits": self.hits,
            "score": score,
            "low": score,
            "high": score,
            "cost_usd": sum(known) / rows if known and len(known) == self.rows else None,
            "tokens": self.tokens / rows,
            "calls": None,
            "seconds": self.seconds / rows,
        }


def _lines(out: Path) -> Iterator[_Line]:
    """Yield the rows of a batch, from its table or, without one, from its answers."""
    table = BatchFolder(out).path / "rows.sqlite"
    if not table.is_file():
        yield from _lines_in_file(out)
        return
    try:
        with _opened(table) as database:
            for (text,) in database.execute("SELECT outcome FROM rows ORDER BY number"):
                line = _decoded(text if isinstance(text, str) else b"")
                if line is not None:
                    yield line
    except (sqlite3.Error, UnicodeError) as error:
        raise ConfigError(f"the state of {out.name} can't be read: {error}") from error


@contextmanager
def _opened(table: Path) -> Generator[sqlite3.Connection, None, None]:
    """Open the table of a batch for reading; it may come from elsewhere."""
    with closing(sqlite3.connect(f"{table.resolve().as_uri()}?mode=ro", uri=True)) as database:
        check_plain(database, table, ("facts", "rows"))
        yield database


def _lines_in_file(out: Path) -> Iterator[_Line]:
    try:
        with out.open("rb") as file:
            while text := file.readline(MAX_LINE_BYTES):
                line = _decoded(text)
                if line is not None:
                    yield line
    except OSError as error:
        raise ConfigError(f"{out.name} can't be read: {error.strerror or error}") from error


def _decoded(text: str | bytes) -> _Line | None:
    """Return a row; None for anything else, such as the end of a line that is being written."""
    try:
        return msgspec.json.decode(text, type=_Line)
    except (ValueError, RecursionError):
        return None


def _settings(out: Path) -> Mapping[str, Any]:
    table = BatchFolder(out).path / "rows.sqlite"
    if not table.is_file():
        return {}
    try:
        with _opened(table) as database:
            query = "SELECT value FROM facts WHERE name = 'settings'"
            found = database.execute(query).fetchone()
            value = msgspec.json.decode(found[0]) if found else {}
    except (ConfigError, sqlite3.Error, ValueError, TypeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _gold(line: _Line) -> str | None:
    meta = line.meta if isinstance(line.meta, dict) else {}
    value = next((meta[key] for key in GOLD if key in meta), None)
    return None if value is None else str(value)


def _score(line: _Line) -> float | None:
    """Return 1 if the answer is the right one, up to case and outer spaces; None if unknown."""
    gold = _gold(line)
    if gold is None:
        return None
    answer = "" if line.answer is None else str(line.answer)
    return float(answer.strip().casefold() == gold.strip().casefold())


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"


def _sample(folder: int, line: _Line, occurrence: int) -> dict[str, Any]:
    place = f"row {line.row + 1}" if line.line is None else f"line {line.line}"
    name = place if line.id is None else str(line.id)
    gold = _gold(line)
    return {
        "folder": folder,
        "key": f"{str(line.row if line.id is None else line.id)[:MAX_CHARS]} {occurrence}",
        "task": "",
        "size": 0,
        "size_words": "",
        "method": "",
        "name": name[:MAX_CHARS],
        "status": "failed" if line.stop_reason == "error" else line.stop_reason[:MAX_CHARS],
        "score": _score(line),
        "answer": _cut(None if line.answer is None else str(line.answer)),
        "gold": _cut(gold),
        "error": _cut(line.error),
        "cost_usd": line.cost_usd,
        "tokens": line.tokens,
        "seconds": line.seconds,
        "run_id": line.run_id[:MAX_CHARS],
    }
