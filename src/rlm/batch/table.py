"""What came of the rows so far: one SQLite file, written before a row counts as done."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rlm.errors import ConfigError
from rlm.limits import Amount

__all__ = ["Entry", "RowTable"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB);
CREATE TABLE IF NOT EXISTS rows (
    number INTEGER PRIMARY KEY, digest TEXT, status TEXT, attempts INTEGER,
    tokens INTEGER, picodollars TEXT, outcome TEXT
);
"""


class Entry(Struct, frozen=True):
    """A row of the table. `attempts` are runs that were begun for it; `outcome` is its JSON."""

    digest: str
    status: str
    attempts: int
    used: Amount
    outcome: str


class RowTable:
    """By number: "answered", "failed" for now, or "again" if it failed the last time."""

    def __init__(self, path: Path) -> None:
        path.touch(0o600)
        self._database = sqlite3.connect(path, isolation_level=None)
        try:
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.executescript(SCHEMA)
            self._database.execute("UPDATE rows SET status = 'again' WHERE status = 'failed'")
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise ConfigError(f"{path} can't be used: {error}; delete it to begin anew") from error

    def close(self) -> None:
        self._database.close()

    def check_settings(self, settings: dict[str, Any]) -> None:
        """Answers of different settings are not mixed in one file."""
        wanted = msgspec.json.encode(settings, order="sorted")
        known = self._one("SELECT value FROM facts WHERE name = 'settings'")
        if known is None:
            self._database.execute("INSERT INTO facts VALUES ('settings', ?)", (wanted,))
        elif known[0] != wanted:
            before = msgspec.json.decode(known[0])
            changed = [name for name in settings if settings[name] != before.get(name)]
            told = ", ".join(f"{name} was {before.get(name)!r}" for name in changed)
            raise ConfigError(
                f"this batch was begun with other settings: {told or 'some are gone'}; go on with "
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
        """What all rows have used that are in the table."""
        used = Amount()
        with closing(self._database.execute("SELECT tokens, picodollars FROM rows")) as rows:
            for tokens, picodollars in rows:
                used += Amount(0, tokens, int(picodollars))
        return used

    def numbers(self, status: str) -> Iterator[int]:
        query = "SELECT number FROM rows WHERE status = ? ORDER BY number"
        with closing(self._database.execute(query, (status,))) as rows:
            yield from (number for (number,) in rows)

    def count(self, status: str) -> int:
        found = self._one("SELECT count(*) FROM rows WHERE status = ?", status)
        return 0 if found is None else int(found[0])

    def _one(self, query: str, *values: Any) -> Any:
        return self._database.execute(query, values).fetchone()
