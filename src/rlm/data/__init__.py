"""Data that stays on the host: tables and databases, from which cells query rows; and places.

A sandbox gets a manifest, never the data; the `answer` method of a source serves the requests of
cells, within limits. Users pass `table`, `tables`, `database` and `place` values as a context.
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
