"""The outcomes of the rows: one line of JSON each, in an SQLite table until it is written."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rlm._util.disks import is_of_the_disk
from rlm.batch.rows import Row, RowPosition
from rlm.errors import ConfigError
from rlm.limits import Amount, picodollars
from rlm.messages import PICODOLLARS
from rlm.records.journal.metering import RunMeter
from rlm.results import RunResult

__all__ = ["Entry", "RowTable", "broken_off", "ended", "error_of"]


def ended(
    position: RowPosition,
    row: Row,
    result: RunResult,
    attempts: int,
    used: Amount,
    *,
    lacked_budget: bool = False,
) -> str:
    """Return the line of a row whose run came to an end, with its answer or the best one there is.

    `used`: by all runs of the row. `lacked_budget`: some of its calls were refused, because others
    had used up the budget.
    """
    return _line(
        position,
        row,
        {
            "answer": result.answer,
            "stop_reason": result.stop_reason,
            "limit": result.limit,
            "error": error_of(result) if result.stop_reason == "error" else None,
            "attempts": attempts,
            "run_id": result.run_id,
            "steps": result.steps,
            "requests": result.usage.total.requests,
            "tokens": used.tokens,
            "cost_usd": None if result.cost_usd is None else used.picodollars / PICODOLLARS,
            "seconds": round(result.seconds, 3),
            **({"lacked_budget": True} if lacked_budget else {}),
        },
    )


def broken_off(
    position: RowPosition,
    row: Row | None,
    error: str,
    attempts: int,
    used: Amount,
    meter: RunMeter,
    run_id: str | None = None,
) -> str:
    """Return the line of a row whose run has no result, because an error or Ctrl-C broke it off."""
    total = meter.reported
    is_unknown = total.requests > 0 and total.cost_usd is None
    facts = {
        "answer": None,
        "stop_reason": "error",
        "limit": None,
        "error": error,
        "attempts": attempts,
        **({} if run_id is None else {"run_id": run_id}),
        "requests": total.requests,
        "tokens": used.tokens,
        "cost_usd": None if is_unknown else used.picodollars / PICODOLLARS,
        "seconds": round(meter.seconds, 3),
    }
    return _line(position, row, facts)


def error_of(result: RunResult) -> str:
    return result.detail or "the run failed"


def _line(position: RowPosition, row: Row | None, facts: dict[str, Any]) -> str:
    """Return JSON in ASCII without control characters, so that it is safe to display."""
    named: dict[str, Any] = {"row": position.number, "line": position.line}
    if row is not None and row.id is not None:
        named["id"] = row.id
    facts = {**named, **facts}
    if row is not None and row.meta is not None:
        facts["meta"] = row.meta
    return json.dumps(facts, default=str).replace("\x7f", "\\u007f")


SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB);
CREATE TABLE IF NOT EXISTS rows (
    number INTEGER PRIMARY KEY, digest TEXT, status TEXT, attempts INTEGER,
    tokens INTEGER, picodollars TEXT, outcome TEXT
);
"""


class Entry(Struct, frozen=True):
    """A row of the table. `attempts` counts its runs; `outcome` is its JSON.

    `used` leaves out what the journal of an unfinished run holds: resuming the run counts it.
    """

    digest: str
    status: str
    attempts: int
    used: Amount
    outcome: str

    @property
    def told(self) -> Amount:
        """Return all that the row has used, as its line says."""
        facts = json.loads(self.outcome)
        return Amount(0, facts.get("tokens") or 0, picodollars(facts.get("cost_usd") or 0))


class RowTable:
    """Outcomes by row number: "answered", "failed" for now, or "again" if it failed before."""

    def __init__(self, path: Path) -> None:
        path.touch(0o600)
        self._database = sqlite3.connect(path, isolation_level=None)
        try:
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.executescript(SCHEMA)
            self._database.execute("UPDATE rows SET status = 'again' WHERE status = 'failed'")
        except sqlite3.DatabaseError as error:
            self._database.close()
            advice = "delete it to start over"
            if is_of_the_disk(error):
                advice = "check the disk and its free space; the answers so far are kept"
            raise ConfigError(f"{path} can't be used: {error}; {advice}") from error

    def close(self) -> None:
        self._database.close()

    def check_settings(self, settings: dict[str, Any]) -> None:
        """Store the settings, or raise ConfigError if the batch was started with others."""
        wanted = msgspec.json.encode(settings, order="sorted")
        known = self._one("SELECT value FROM facts WHERE name = 'settings'")
        if known is None:
            self._database.execute("INSERT INTO facts VALUES ('settings', ?)", (wanted,))
        elif known[0] != wanted:
            before = msgspec.json.decode(known[0])
            changed = [name for name in settings if settings[name] != before.get(name)]
            listed = ", ".join(f"{name} was {before.get(name)!r}" for name in changed)
            raise ConfigError(
                f"this batch was started with other settings: {listed or 'some are missing'}; use "
                "those, or choose another --out"
            )

    def get(self, number: int) -> Entry | None:
        found = self._one(
            "SELECT digest, status, attempts, tokens, picodollars, outcome FROM rows"
            " WHERE number = ?",
            number,
        )
        if found is None:
            return None
        digest, status, attempts, tokens, picodollars, outcome = found
        used = Amount(0, tokens, int(picodollars))
        return Entry(digest, status, attempts, used, outcome)

    def put(self, number: int, entry: Entry) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                entry.digest,
                entry.status,
                entry.attempts,
                entry.used.tokens,
                str(entry.used.picodollars),
                entry.outcome,
            ),
        )

    def used(self) -> Amount:
        """Return what all rows in the table have used."""
        used = Amount()
        with closing(self._database.execute("SELECT tokens, picodollars FROM rows")) as rows:
            for tokens, picodollars in rows:
                used += Amount(0, tokens, int(picodollars))
        return used

    def count(self, status: str) -> int:
        found = self._one("SELECT count(*) FROM rows WHERE status = ?", status)
        return 0 if found is None else int(found[0])

    def _one(self, query: str, *values: Any) -> Any:
        return self._database.execute(query, values).fetchone()
