"""What a query returns to a cell: rows of plain values as JSON, within limits.

Every engine uses this module, also in limited processes, so it imports little. An answer is JSON
that begins with its columns or with its error, so that the host need not read the rows.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

__all__ = ["Answer", "QueryError", "error_answer", "error_in", "plain", "rows_answer"]

MAX_BLOB_BYTES = 1_000
"""Longer binary values are cut: they are not text, and a model can't read them."""

MAX_ERROR_CHARS = 600
_MAX_SAFE_DEPTH = 20
_encode = json.JSONEncoder(ensure_ascii=False).encode
_ERROR = '{"error": '

Answer = str
"""`{"columns": …, "types": …, "is_cut": …, "rows": …}` with rows as lists, or `{"error": …}`."""


class QueryError(Exception):
    """A query that can't be answered; the message is one line for its author."""


def rows_answer(
    columns: Sequence[str],
    types: Sequence[str],
    fetch: Callable[[int], Sequence[Sequence[Any]]],
    max_rows: int,
    max_bytes: int,
) -> Answer:
    """Return the first rows as an answer; `fetch` returns the next rows, none at the end."""
    rows: list[str] = []
    size, is_cut = 0, False
    while not is_cut and (found := fetch(min(1_000, max_rows + 1 - len(rows)))):
        for row in found:
            text = _encode([plain(value) for value in row])
            size += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
            is_cut = len(rows) >= max_rows or size > max_bytes
            if is_cut:
                break
            rows.append(text)
    if is_cut and not rows:
        raise QueryError(
            f"one row has more than {max_bytes:,} bytes: select fewer columns, or part of a long "
            "text, such as substr(text, 1, 1000)"
        )
    told = json.dumps({"columns": list(columns), "types": list(types), "is_cut": is_cut})
    return f'{told[:-1]}, "rows": [{",".join(rows)}]}}'


def error_answer(error: object) -> Answer:
    """Return an answer that holds an error, in one line."""
    line = " ".join(str(error).split())
    cut = line if len(line) <= MAX_ERROR_CHARS else f"{line[:MAX_ERROR_CHARS]}…"
    return json.dumps({"error": cut})


def error_in(answer: Answer) -> str | None:
    """Return the error in an answer, if any."""
    if not answer.startswith(_ERROR):
        return None
    return str(json.loads(answer)["error"])


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON can hold it: times as ISO texts, binary as `\\x` and hexadecimals."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _hexadecimal(bytes(value))
    if depth >= _MAX_SAFE_DEPTH:
        return str(value)
    if isinstance(value, dict):
        return {str(key): plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, Iterable):
        return [plain(each, depth + 1) for each in value]
    return str(value)


def _number(value: Decimal) -> int | float | str:
    """Return a decimal as a number if that loses nothing, else as text."""
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value():
        return int(value)
    number = float(value)
    return number if Decimal(repr(number)) == value else str(value)


def _hexadecimal(data: bytes) -> str:
    if len(data) <= MAX_BLOB_BYTES:
        return f"\\x{data.hex()}"
    return f"\\x{data[:MAX_BLOB_BYTES].hex()}… ({len(data):,} bytes)"
