"""A disk that is full is told from a file that is damaged."""

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from rlm._util.disks import is_full, is_of_the_disk
from rlm.batch.outcomes import RowTable
from rlm.data.corpus.folder import full as full_corpus
from rlm.errors import ConfigError
from rlm.records.journal import database

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def of_sqlite(code: int, text: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "full", "of_the_disk"),
    [
        (FULL, True, True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True, True),
        (OSError(errno.EACCES, "Permission denied"), False, True),
        (of_sqlite(sqlite3.SQLITE_FULL, "database or disk is full"), True, True),
        (of_sqlite(sqlite3.SQLITE_IOERR | 19 << 8, "disk I/O error"), False, True),
        (of_sqlite(sqlite3.SQLITE_CORRUPT, "malformed"), False, False),
        (of_sqlite(sqlite3.SQLITE_NOTADB, "file is not a database"), False, False),
        ("code: 28, kind: Other, message: No space left on device", True, True),
        (ValueError("no JSON"), False, False),
    ],
)
def test_errors(error: object, full: bool, of_the_disk: bool) -> None:
    assert (is_full(error), is_of_the_disk(error)) == (full, of_the_disk)


def test_nobody_is_told_to_delete_what_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.sqlite"
    told = [
        str(database.not_writable(path, FULL)),
        str(database.damaged(path, of_sqlite(sqlite3.SQLITE_IOERR, "disk I/O error"))),
        str(full_corpus(tmp_path)),
    ]

    class Full:
        def execute(self, _: str) -> None:
            raise of_sqlite(sqlite3.SQLITE_IOERR, "disk I/O error")

        def close(self) -> None: ...

    monkeypatch.setattr(sqlite3, "connect", lambda *_, **__: Full())
    with pytest.raises(ConfigError, match=r"x\.sqlite can't be used: disk I/O error") as of_rows:
        RowTable(path)
    for text in (*told, str(of_rows.value)):
        assert str(tmp_path) in text
        advice = text.replace(str(tmp_path), "")
        assert not [word for word in ("delete", "remove", "damaged") if word in advice]
