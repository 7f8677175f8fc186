"""Requests of cells for rows: read as untrusted input, and turned into one SQL statement."""

from functools import partial
from typing import Any

from rlm._util.off_loop import off_loop
from rlm.data.source import DataRefused, QueryLimits

__all__ = ["check_count", "quoted", "read_off_loop", "read_request"]

MAX_PARAMETER_CHARS = 1 << 20
_HIGHEST_ROW = 10**15


def read_request(
    method: str, arguments: dict[str, Any], tables: list[dict[str, Any]], limits: QueryLimits
) -> tuple[str, list[Any]]:
    """Return the SQL and the parameters of a request; DataRefused if it is malformed."""
    if method == "sql":
        return _query(arguments, limits)
    if method == "rows":
        return _rows(arguments, tables, limits), []
    raise DataRefused(f"tables have no method {method[:60]!r}")


async def read_off_loop(
    method: str, arguments: dict[str, Any], tables: list[dict[str, Any]], limits: QueryLimits
) -> tuple[str, list[Any]]:
    """Do the same as `read_request`; long parameters are checked in a thread."""
    check_count(arguments, limits)
    given = arguments.get("parameters")
    texts = [each for each in given if isinstance(each, str)] if isinstance(given, list) else []
    work = partial(read_request, method, arguments, tables, limits)
    return await off_loop(sum(map(len, texts)), work)


def check_count(arguments: dict[str, Any], limits: QueryLimits) -> None:
    """Refuse more parameters than a query may have, however long they are."""
    parameters = arguments.get("parameters")
    if isinstance(parameters, list) and len(parameters) > limits.parameters:
        raise DataRefused(f"a query can have at most {limits.parameters:,} parameters")


def quoted(name: str) -> str:
    """Return any name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _query(arguments: dict[str, Any], limits: QueryLimits) -> tuple[str, list[Any]]:
    sql, parameters = arguments.get("query"), arguments.get("parameters", [])
    if not isinstance(sql, str) or not isinstance(parameters, list):
        raise DataRefused('malformed call: write ctx.sql("select …", *parameters)')
    if len(sql) > limits.query_chars:
        raise DataRefused(
            f"a query can have at most {limits.query_chars:,} characters; pass long values as "
            "parameters"
        )
    if "\0" in sql or not _is_unicode(sql):
        raise DataRefused("a query can't contain a NUL or a lone surrogate")
    check_count(arguments, limits)
    for each in parameters:
        if each is not None and not isinstance(each, (str, int, float, bool)):
            raise DataRefused(
                f"a parameter must be a string, a number, a bool or None, not {type(each).__name__}"
            )
        if isinstance(each, str) and (len(each) > MAX_PARAMETER_CHARS or not _is_unicode(each)):
            raise DataRefused(
                f"a parameter can have at most {MAX_PARAMETER_CHARS:,} characters, all of them "
                "valid"
            )
    return sql, parameters


def _rows(arguments: dict[str, Any], tables: list[dict[str, Any]], limits: QueryLimits) -> str:
    table = next((each for each in tables if each["name"] == arguments.get("table")), None)
    if table is None:
        raise DataRefused("no such table")
    columns = arguments.get("columns")
    if columns is None:
        listed = "*"
    elif isinstance(columns, list) and _are_columns(columns, table["columns"]):
        listed = ", ".join(map(quoted, columns))
    else:
        raise DataRefused(f"no such column in the table {table['name']}")
    start, count = _number(arguments.get("start", 0)), _number(arguments.get("count", limits.rows))
    rows = f"{table['reference']}{table.get('order', '')}"
    return f"select {listed} from {rows} limit {min(count, limits.rows)} offset {start}"


def _are_columns(asked: list[Any], known: list[str]) -> bool:
    """Whether all names are of columns; a long list of anything else is not looked through."""
    if not 0 < len(asked) <= len(known):
        return False
    names = set(known)
    return all(isinstance(each, str) and each in names for each in asked)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _HIGHEST_ROW:
        raise DataRefused("rows are counted from 0")
    return value
