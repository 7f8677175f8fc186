"""Data that stays on the host: tables and databases, which cells ask for rows; and places.

A sandbox gets a manifest, never the data; `answer` of a source serves the requests of its cells,
within limits. `table`, `tables`, `database` and `place` are what users pass as a context.
"""

from rlm.data.given import (
    Database,
    GivenTables,
    OpenCorpus,
    database,
    given_data,
    table,
    tables,
    tables_of,
)
from rlm.data.opening import open_data, reopen_data
from rlm.data.places.addresses import Fetched, FetchLimits, Place, is_address, place
from rlm.data.source import DataRefused, DataSource, QueryLimits

__all__ = [
    "DataRefused",
    "DataSource",
    "Database",
    "FetchLimits",
    "Fetched",
    "GivenTables",
    "OpenCorpus",
    "Place",
    "QueryLimits",
    "database",
    "given_data",
    "is_address",
    "open_data",
    "place",
    "reopen_data",
    "table",
    "tables",
    "tables_of",
]
