"""Open data that a user passed or that a recorded run used. Blocking."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from rlm.data.given import Database, GivenCorpus, GivenTables, table
from rlm.data.source import DataSource
from rlm.errors import ConfigError

__all__ = ["open_data", "reopen_data"]

_POSTGRES = ("postgres", "postgresql")


def open_data(given: GivenTables | GivenCorpus | Database) -> DataSource:
    """Open and describe tables, a corpus or a database; ConfigError if that fails."""
    if isinstance(given, GivenCorpus):
        from rlm.data.corpus.source import CorpusSource

        return CorpusSource(given.path)
    from rlm.data.table_source import open_tables  # Imported late: few contexts are tables.

    if isinstance(given, GivenTables):
        return open_tables(given)
    url = given.resolved()
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        path = unquote(url.partition(":///")[2])
        if not path:
            raise ConfigError("the URL of a SQLite file has the form sqlite:///path")
        return open_tables(table(Path(path)))
    if scheme in _POSTGRES:
        from rlm.data.postgres import PostgresSource

        return PostgresSource(given)
    raise ConfigError("a database's URL must begin with postgresql:// or sqlite:///")


def reopen_data(spec: dict[str, Any] | None) -> DataSource:
    """Open the source of a recorded run again; ConfigError if only its program can."""
    if spec is None:
        raise ConfigError(
            "the run was about frames, or a database whose URL has a password; journals store "
            "neither (but '$NAME', an environment variable that contains the URL): pass the same "
            "data again"
        )
    if spec["source"] == "corpus":
        from rlm.data.corpus.source import CorpusSource

        return CorpusSource(Path(spec["path"]), spec.get("told"))
    if spec["source"] == "database":
        return open_data(Database(spec["url"], tuple(spec["schemas"])))
    files = {
        name: Path(found) if isinstance(found, str) else tuple(map(Path, found))
        for name, found in spec["files"].items()
    }
    return open_data(GivenTables(files))
