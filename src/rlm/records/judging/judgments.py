"""Tags, scores and comments of root runs, in one SQLite file of the state folder.

A change is a transaction: if two writers add something at the same time, both are kept. A damaged
file is reported and never replaced, because there is no other copy of its content.
"""

import math
import os
import re
import secrets
import sqlite3
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from rlm._util.slow_numbers import decode
from rlm._util.text import counted, sendable
from rlm._util.transactions import transaction
from rlm.errors import ConfigError
from rlm.records.journal.records import private

__all__ = [
    "Comment",
    "Judgment",
    "JudgmentChange",
    "Judgments",
    "checked_score",
    "checked_tag",
]

FILE = "judgments.sqlite"
VERSION = 1
MAX_TAGS = 20
MAX_COMMENTS = 50
MAX_COMMENT_CHARS = 4_000
MAX_ID_CHARS = 500
LARGEST_SCORE = 1e9
MAX_RUNS = 100_000
MAX_ROW_BYTES = 2_000_000
BUSY_MS = 10_000
_OURS = 0x524C4D4A
"""SQLite's application id, which marks the file as ours."""

_HEAD_BYTES = 100
_COUNTER = slice(24, 28)
"""Where an SQLite file counts its changes, which tells apart two within one tick of the clock."""

Stamp = tuple[int, int, int, bytes]
_TAG = re.compile(r"[^\W_][\w.:+/-]{0,49}")
_FAILURES = (OSError, sqlite3.Error, UnicodeError)
_TABLE = "create table judgments (run_id text primary key, value blob not null) without rowid"


class Comment(Struct, frozen=True, kw_only=True):
    """A comment; `at` is in seconds since 1970."""

    id: str
    text: str
    at: float


class Judgment(Struct, frozen=True, omit_defaults=True):
    """What people said about one run."""

    tags: tuple[str, ...] = ()
    score: float | None = None
    comments: tuple[Comment, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tags or self.comments or self.score is not None)


class JudgmentChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to add and remove; `score=None` removes the score, an unset score leaves it."""

    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()
    score: float | UnsetType | None = UNSET
    comment: str | None = None
    remove_comment: str | None = None

    def applied_to(self, before: Judgment) -> Judgment:
        """Return the judgment after this change; raise ConfigError if it can't be stored."""
        removed = set(self.remove_tags)
        tags = dict.fromkeys(
            [*(tag for tag in before.tags if tag not in removed), *map(checked_tag, self.add_tags)]
        )
        if len(tags) > MAX_TAGS:
            raise ConfigError(f"a run can have at most {MAX_TAGS} tags; remove one first")
        comments = tuple(each for each in before.comments if each.id != self.remove_comment)
        if self.comment is not None:
            comments = (*comments, _new_comment(self.comment))
        if len(comments) > MAX_COMMENTS:
            raise ConfigError(f"a run can have at most {MAX_COMMENTS} comments; remove one first")
        score = before.score if self.score is UNSET else checked_score(self.score)
        return Judgment(tuple(tags), score, comments)


def checked_tag(tag: str) -> str:
    """Return a tag; ConfigError if it can't be one."""
    if not _TAG.fullmatch(tag):
        shown = ascii(tag[:60])
        raise ConfigError(
            f"{shown} can't be a tag: a tag has 1 to 50 letters, digits or characters of ._:+/- "
            "and begins with a letter or a digit"
        )
    return tag


def checked_score(score: float | None) -> float | None:
    """Return a score; ConfigError if it can't be one."""
    if score is None:
        return None
    if not math.isfinite(score) or abs(score) > LARGEST_SCORE:
        raise ConfigError("a score must be a number, such as 0.8 or 1")
    return float(score) + 0.0  # without -0.0


def _new_comment(text: str) -> Comment:
    text = sendable(text).replace("\r\n", "\n").strip()
    if not text or len(text) > MAX_COMMENT_CHARS:
        raise ConfigError(f"a comment must have 1 to {MAX_COMMENT_CHARS:,} characters")
    return Comment(id=secrets.token_hex(6), text=text, at=time.time())


class Judgments:
    """The judgments below one state folder. The first one creates the file."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE
        self._known: tuple[Stamp, dict[str, Judgment]] | None = None

    # -- reading -----------------------------------------------------------------------------

    def stamp(self) -> Stamp | None:
        """Return a value that changes with every change; None without a file."""
        try:
            with self.path.open("rb") as file:
                found, head = os.fstat(file.fileno()), file.read(_HEAD_BYTES)
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, head[_COUNTER]

    def all(self) -> Mapping[str, Judgment]:
        """Return every judgment by the id of its run; raise ConfigError if the file is damaged."""
        stamp = self.stamp()
        if stamp is None:
            return {}
        known = self._known
        if known is None or known[0] != stamp:
            with self._opened(make=False) as connection:
                rows = connection.execute(
                    "select run_id, value from judgments limit ?", (2 * MAX_RUNS,)
                ).fetchall()
            found = ((run_id, _decoded(value)) for run_id, value in rows)
            values = {run_id: each for run_id, each in found if each is not None}
            self._known = known = stamp, values
        return known[1]

    def get(self, run_id: str) -> Judgment:
        return self.all().get(run_id) or Judgment()

    # -- writing -----------------------------------------------------------------------------

    def change(self, run_id: str, change: JudgmentChange) -> Judgment:
        """Apply a change to what is stored, and return the result."""
        if not run_id or len(run_id) > MAX_ID_CHARS:
            raise ConfigError("no such run")
        change.applied_to(Judgment())  # What can't be stored must not create a file.
        with self._opened(make=True) as connection, transaction(connection):
            row = connection.execute(
                "select value from judgments where run_id = ?", (run_id,)
            ).fetchone()
            before = Judgment() if row is None else _decoded(row[0])
            if before is None:
                raise ConfigError(f"{self.path}: the judgment of this run can't be read; {_ADVICE}")
            after = change.applied_to(before)
            if not after:
                connection.execute("delete from judgments where run_id = ?", (run_id,))
                return after
            if row is None:
                self._check_room(connection)
            connection.execute(
                "insert or replace into judgments values (?, ?)",
                (run_id, msgspec.json.encode(after)),
            )
            return after

    def forget(self, run_ids: Iterable[str]) -> None:
        """Remove the judgments of runs that were removed."""
        if self.stamp() is None:
            return
        with self._opened(make=False) as connection, transaction(connection):
            connection.executemany(
                "delete from judgments where run_id = ?", [(run_id,) for run_id in run_ids]
            )

    def _check_room(self, connection: sqlite3.Connection) -> None:
        (count,) = connection.execute("select count(*) from judgments").fetchone()
        if count >= MAX_RUNS:
            raise ConfigError(
                f"{counted(MAX_RUNS, 'run')} have judgments, and there is no room for more; `rlm "
                "rm` removes a run's judgments with the run"
            )

    @contextmanager
    def _opened(self, *, make: bool) -> Generator[sqlite3.Connection, None, None]:
        """Open the file; turn SQLite's errors into ConfigErrors."""
        try:
            if make:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(private(self.path, os.O_RDWR | (os.O_CREAT if make else 0)))
            address = f"{self.path.absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
                connection.execute(f"pragma busy_timeout={BUSY_MS}")
                connection.execute("pragma synchronous=full")  # It can't be recovered.
                self._prepare(connection)
                yield connection
        except _FAILURES as error:
            raise ConfigError(f"{self.path} can't be used: {error}; {_ADVICE}") from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (ours,) = connection.execute("pragma application_id").fetchone()
        (version,) = connection.execute("pragma user_version").fetchone()
        if (ours, version) == (_OURS, VERSION):
            return
        if (ours, version) != (0, 0):
            raise ConfigError(
                f"{self.path} belongs to another version of rlm, or not to rlm; {_ADVICE}"
            )
        with transaction(connection):
            if connection.execute("select 1 from sqlite_master").fetchone() is None:
                connection.execute(_TABLE)
                connection.execute(f"pragma application_id={_OURS}")
                connection.execute(f"pragma user_version={VERSION}")


_ADVICE = "move it away to start with an empty one"


def _decoded(value: object) -> Judgment | None:
    """Return a stored judgment; None if it is not one of ours."""
    if not isinstance(value, bytes) or len(value) > MAX_ROW_BYTES:
        return None
    try:
        found = decode(value, Judgment)
    except (ValueError, RecursionError):
        return None
    score = found.score
    return replace(found, score=None) if score is not None and not math.isfinite(score) else found
