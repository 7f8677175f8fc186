"""The names in a query for PostgreSQL, and those whose effects a read-only transaction allows.

A query is split as PostgreSQL splits it, so a name in a string or a comment is ignored. If anything
is unclear, the query is refused.
"""

import re
from collections.abc import Collection, Iterator

from rlm.data.source import DataRefused

__all__ = ["check_words", "names_in"]

_TOKENS = re.compile(
    r"""
    (?P<skipped>--[^\n\r]*|/\*(?:(?!/\*|\*/).)*\*/)
    | (?P<unclear>/\*|\*/|[uU]&['"])
    | (?P<text>[eE]'(?:[^'\\]|\\.|'')*'|(?:[bBxXnN])?'(?:[^']|'')*'
        |\$(?P<tag>[^\W\d]\w*|)\$.*?\$(?P=tag)\$)
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<word>[^\W\d][\w$]*)
    | (?P<number>\d\w*)
    | (?P<dot>\.)
    | (?P<space>\s+)
    | (?P<open>['"]|\$(?:[^\W\d]\w*)?\$)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)

_REFUSED = re.compile(
    r"pg_(?!typeof$|size_pretty$|column_size$|get_).*"  # files, locks, sessions, settings, catalogs
    r"|lo_.*|loread|lowrite"  # large objects are written outside of tables
    r"|dblink.*|postgres_fdw.*"
    r"|set_config|nextval|setval|lastval"
    r"|.*_to_xml(?:schema|_and_xmlschema)?|ts_stat|ts_rewrite|crosstab.*|connectby"  # run other SQL
    r"|binary_upgrade_.*|brin_.*|gin_clean_pending_list|xmlroot"
)
"""Functions that act outside tables or run other SQL, and the system tables."""


def names_in(query: str) -> Iterator[tuple[str, bool]]:
    """Yield the names in a query, and whether a dot follows; DataRefused if unclear."""
    name: str | None = None
    for found in _TOKENS.finditer(query):
        kind = found.lastgroup if found.lastgroup != "tag" else "text"
        if kind in ("space", "skipped"):
            continue
        if kind in ("unclear", "open"):
            raise DataRefused(f"this query has an ambiguous {found[0]!r}: write it more simply")
        if name is not None:
            yield name, kind == "dot"
            name = None
        if kind == "word":
            name = found[0].lower()
        elif kind == "quoted":
            name = found[0][1:-1].replace('""', '"')
    if name is not None:
        yield name, False


def check_words(query: str, schemas: Collection[str], all_schemas: Collection[str]) -> None:
    """Refuse a query that names a function with side effects, or a schema that is not listed."""
    for name, is_qualifier in names_in(query):
        if is_qualifier and name in all_schemas and name not in schemas:
            listed = ", ".join(schemas)
            raise DataRefused(f"the schema {name} can't be used here; schemas: {listed}")
        if _REFUSED.fullmatch(name):
            raise DataRefused(f"{name[:60]} can't be used here: only tables can be read")
