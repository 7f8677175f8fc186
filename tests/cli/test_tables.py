"""`rlm ask` over tables and databases."""

import sqlite3
from pathlib import Path

from tests.cli.running import one_clear_line, rlm

QUERY = "How many orders?"


def made(folder: Path) -> Path:
    path = folder / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table orders (id integer)")
    connection.close()
    return path


def test_files_tables_and_databases_exclude_each_other(tmp_path: Path) -> None:
    path = str(made(tmp_path))
    done = rlm("ask", QUERY, "-f", path, "--table", path)
    assert done.returncode == 2
    assert "--table" in done.stderr


def test_a_wrong_database_is_one_clear_line(tmp_path: Path) -> None:
    for url, words in (
        ("mysql://x", "postgresql://"),
        ("$NO_SUCH_VARIABLE", "NO_SUCH_VARIABLE is not set"),
        (f"sqlite:///{tmp_path}/missing.db", "missing.db"),
    ):
        done = rlm("ask", QUERY, "--db", url)
        assert done.returncode != 0
        assert words in one_clear_line(done.stderr)
