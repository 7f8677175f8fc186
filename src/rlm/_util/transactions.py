"""Transactions of SQLite files that several threads or processes write."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["transaction"]


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None, None, None]:
    """Write all or nothing. Other writers wait from the beginning, so that none has to start again.

    The connection must have `isolation_level=None`.
    """
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:  # A full disk may have ended it.
            connection.execute("rollback")
        raise
