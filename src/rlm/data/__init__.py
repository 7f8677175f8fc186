"""Data that stays on the host: tables and databases, which cells ask for rows.

A sandbox gets a manifest, never the data; `answer` of a source serves the requests of its cells,
within limits. `table`, `tables` and `database` are what users pass as a context.
"""

from rlm.data.given import Database, GivenTables, database, given_data, table, tables
from rlm.data.opening import open_data, reopen_data
from rlm.data.source import DataRefused, DataSource, QueryLimits

__all__ = [
    "DataRefused",
    "DataSource",
    "Database",
    "GivenTables",
    "QueryLimits",
    "database",
    "given_data",
    "open_data",
    "reopen_data",
    "table",
    "tables",
]
