"""Describe tables to a model: names, types, numbers of rows, and a few statistics.

Ranges are given only for numbers and times: other values are content.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rlm._util.text import counted
from rlm.data.source import QueryLimits

__all__ = ["SAMPLE_CHARS", "described_tables", "sample_text"]

MAX_COLUMNS = 40
MAX_TABLES = 40
MAX_NAME_CHARS = 80
MAX_LEFT_OUT = 10
MAX_TYPE_CHARS = 60
MAX_VALUE_CHARS = 30
MAX_SAMPLE_CHARS = 200
SAMPLE_CHARS = 20_000
"""How much text of rows is kept for runs that show rows."""
_RANGED = re.compile(
    r"U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?\d*|DOUBLE(?: PRECISION)?|FLOAT\d*|REAL|DATE(?:TIME)?"
    r"|(?:DECIMAL|NUMERIC)(?:\([\d, ]+\))?|TIME(?:STAMP)?[\w ]*(?:\(\d\))?[\w ]*"
)
"""Types whose range is given; the range of a list or structure would be content."""
_ENUM = re.compile(r"ENUM\s?\((?:'(?:[^']|'')*+(?:'(?:, )?|\Z))*+(?:\)|\Z)")
MAX_READ_TYPE_CHARS = 4_000


def described_tables(
    tables: list[dict[str, Any]],
    engine: str,
    limits: QueryLimits,
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the description of a context of tables; `left_out` are unreadable tables."""
    if len(tables) == 1:
        head = f"`context` is a table for SQL ({engine}):"
    else:
        head = f"`context` is a dict of {counted(len(tables), 'table')} for SQL ({engine}):"
    lines = [head]
    for table in tables[:MAX_TABLES]:
        lines += _lines_of(table)
    if len(tables) > MAX_TABLES:
        lines.append(f"and {counted(len(tables) - MAX_TABLES, 'more table')}: see `list(context)`")
    for name, why in list(left_out.items())[:MAX_LEFT_OUT]:
        lines.append(f"- `{_name(name)}` can't be read: {_name(' '.join(why.split()))}")
    lines.append(
        'Ask for rows with `ctx.sql("select …", *parameters)`: one SELECT at a time, read-only, up '
        f"to {limits.rows:,} rows, {limits.bytes >> 20} MB and {limits.seconds:g} s. It returns a "
        'list of dicts; `rows["column"]` is a list of values, and `rows.is_cut` says whether rows '
        "are missing. Filter, count and group in SQL."
    )
    return "\n".join(lines)


def sample_text(name: str, columns: list[str], rows: list[Any], chars: int) -> str:
    """Return a few rows as text, each value cut."""
    lines = [f"First rows of {name}:"]
    for row in rows:
        pairs = (f"{_name(c)}={_cut(repr(v))}" for c, v in zip(columns, row, strict=True))
        lines.append(f"  {', '.join(pairs)}"[:chars])
    return "\n".join(lines)


def _lines_of(table: dict[str, Any]) -> list[str]:
    rows = table["rows"]
    size = "an unknown number of rows" if rows is None else counted(rows, "row")
    size = f"about {size}" if rows is not None and table.get("is_estimate") else size
    columns = list(zip(table["columns"], table["types"], strict=True))
    lines = [f"- `{_name(table['name'])}`: {size}, {counted(len(columns), 'column')}"]
    for name, kind in columns[:MAX_COLUMNS]:
        about = _about(kind, table["statistics"].get(name), rows)
        lines.append(f"  - {_name(name)}: {_type(kind)}{about}")
    if len(columns) > MAX_COLUMNS:
        lines.append(f"  - and {len(columns) - MAX_COLUMNS:,} more: see `.columns`")
    return lines


def _about(kind: str, statistics: list[Any] | None, rows: int | None) -> str:
    """Return what is known about a column: range, distinct values, share of nulls."""
    if not statistics or not rows:
        return ""
    lowest, highest, distinct, nulls = statistics
    words = []
    if _RANGED.fullmatch(kind.upper()):
        if lowest is not None and highest is not None:
            words.append(f"{lowest[:MAX_VALUE_CHARS]} to {highest[:MAX_VALUE_CHARS]}")
    elif distinct is not None:
        words.append(f"about {counted(min(distinct, rows), 'distinct value')}")
    if nulls:
        words.append(f"{nulls:g} % null")
    return f", {', '.join(words)}" if words else ""


def _type(kind: str) -> str:
    """Return a type on one line; the values of an enumeration are content."""
    return _ENUM.sub("ENUM", " ".join(kind[:MAX_READ_TYPE_CHARS].split()))[:MAX_TYPE_CHARS]


def _name(name: str) -> str:
    """Return a name on one line, of limited length, with odd characters escaped."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return shown if len(shown) <= MAX_NAME_CHARS else f"{shown[:MAX_NAME_CHARS]}…"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SAMPLE_CHARS else f"{text[:MAX_SAMPLE_CHARS]}…"
