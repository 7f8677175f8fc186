"""Tables that stay on the host, as cells see them: `context`, `ctx.sql` and the rows it returns.

Nothing here opens a file or a database: every row comes from a call of kind `data`.
"""

from __future__ import annotations

import json

from . import wire
from .calls import meta
from .channel import question
from .hits import counted
from .replies import AwaitableList

__all__ = ["METHODS", "QueryFailed", "Rows", "Table", "Tables", "TablesView", "made_tables"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from .calls import Dialogue

    AnswerOf = Callable[[Dialogue], Any]

METHODS = (
    (
        'sql("select …", *parameters)',
        'rows of a SELECT: a list of dicts; `rows["column"]`: a list; `.is_cut`: some are missing',
    ),
    ("tables", "the tables by name, each with `columns`, `types`, `len()` and `head(n)`"),
)
"""The names of `ctx` over tables that prompts list in place of those over texts."""

PAGE_ROWS = 10_000
_SHOWN_ROWS = 50
_SHOWN_COLUMNS = 30
_CELL_CHARS = 80
_REPR_COLUMNS = 20


class QueryFailed(RuntimeError):
    """A query failed or was refused; the text is the database's message."""

    __module__ = "__main__"


class Rows(AwaitableList):
    """The rows of a query: a list of dicts, and `rows["column"]` for the values of a column.

    `is_cut` is true if there are more than were returned; `total` is their number, or None if
    unknown. When printed, it is a table of the first rows; in an answer or a prompt, of all rows.
    """

    def __init__(self, rows: Iterable[Any] = (), columns: Iterable[str] = (), cut: bool = False):
        super().__init__(rows)
        self.columns = list(columns)
        self.is_cut = cut
        self.total = None if cut else len(self)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self.columns:
                raise KeyError(f"no column {key!r}; columns: {', '.join(self.columns)}")
            return [row[key] for row in self]
        found = super().__getitem__(key)
        return Rows(found, self.columns, self.is_cut) if isinstance(key, slice) else found

    def _plain(self) -> Rows:
        return self

    def __format__(self, _: str) -> str:
        return str(list(self))

    def __str__(self) -> str:
        names = self.columns[:_SHOWN_COLUMNS]
        lines = [[_shown(name) for name in names]]
        lines += [[_shown(row.get(name)) for name in names] for row in self[:_SHOWN_ROWS]]
        widths = [max(map(len, column)) for column in zip(*lines)]  # noqa: B905 - Python 3.9
        text = [" | ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        if text:
            text.insert(1, "-+-".join("-" * width for width in widths))
        left, wide = len(self) - _SHOWN_ROWS, len(self.columns) - _SHOWN_COLUMNS
        if left > 0:
            text.append(f"… {counted(left, 'more row')}, not shown: print a slice of them")
        if wide > 0:
            text.append(f"… {counted(wide, 'more column')}, not shown: see .columns")
        if self.is_cut:
            text.append(f"(only the first {counted(len(self), 'row')}: is_cut is True)")
        elif not self:
            text.append("(no rows)")
        return "\n".join(text)

    __repr__ = __str__

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain list, so that any Python can load a saved chat."""
        return list, (list(self),)


class _Source:
    """What all tables of one source share: its id, and how to ask it."""

    def __init__(self, source_id: str, answer_of: AnswerOf) -> None:
        self.id = source_id
        self._answer_of = answer_of

    def rows(self, method: str, arguments: dict[str, Any]) -> Rows:
        found: Rows = self._answer_of(_request(self.id, method, arguments))
        return found

    def sql(self, query: str, parameters: tuple[Any, ...]) -> Rows:
        if len(parameters) == 1 and isinstance(parameters[0], (list, tuple)):
            parameters = tuple(parameters[0])
        given = {"query": str(query), "parameters": [_parameter(each) for each in parameters]}
        return self.rows("sql", given)

    def __reduce__(self) -> Any:
        raise TypeError("tables stay on the host: they can't be stored")


class Table:
    """One table: `name`, `columns`, `types`, `len(table)`, `head(n)`, `table["column"]`, `sql`.

    Iterating yields its rows as dicts, fetched in pages.
    """

    def __init__(self, source: _Source, told: dict[str, Any]) -> None:
        self.name: str = told["name"]
        self.columns: list[str] = list(told["columns"])
        self.types: list[str] = list(told["types"])
        self._reference: str = told["reference"]
        self._count: int | None = told["rows"]
        self._source = source
        self._source_id = source.id

    def sql(self, query: str, *parameters: Any) -> Rows:
        """Return the rows of one SELECT over all tables of the context."""
        return self._source.sql(query, parameters)

    def head(self, n: int = 5) -> Rows:
        """Return the first rows."""
        return self._rows(0, n)

    def __len__(self) -> int:
        if self._count is None:
            counting = f"select count(*) as n from {self._reference}"  # noqa: S608 - it is quoted
            found = self._source.sql(counting, ())
            self._count = found[0]["n"]
        return self._count

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._walk(None)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self.columns:
                raise KeyError(f"no column {key!r}; columns: {', '.join(self.columns)}")
            return [row[key] for row in self._walk([key])]
        if isinstance(key, slice):
            chosen = range(len(self))[key]
            first, last = sorted((chosen[0], chosen[-1])) if chosen else (0, -1)
            return self._rows(first, last + 1 - first)[:: chosen.step]
        found = self._page(key if key >= 0 else len(self) + key, 1)
        if not found:
            raise IndexError("the table has fewer rows")
        return found[0]

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __repr__(self) -> str:
        pairs = [f"{name} {kind}" for name, kind in zip(self.columns, self.types)]  # noqa: B905
        more = f" and {len(pairs) - _REPR_COLUMNS} more" if len(pairs) > _REPR_COLUMNS else ""
        size = "rows not counted" if self._count is None else counted(self._count, "row")
        return f"<table {self.name}: {size}; {', '.join(pairs[:_REPR_COLUMNS])}{more}>"

    def _rows(self, start: int, count: int) -> Rows:
        found: list[Any] = []
        while len(found) < count and (page := self._page(start + len(found), count - len(found))):
            found += page
        return Rows(found, self.columns)

    def _walk(self, columns: list[str] | None) -> Iterator[dict[str, Any]]:
        start = 0
        while page := self._page(start, PAGE_ROWS, columns):
            yield from page
            start += len(page)

    def _page(self, start: int, count: int, columns: list[str] | None = None) -> Rows:
        given = {"table": self.name, "start": start, "count": min(count, PAGE_ROWS)}
        if columns is not None:
            given["columns"] = columns
        return self._source.rows("rows", given)


class Tables(dict):  # type: ignore[type-arg]
    """Several tables by name; `sql` asks about all of them together."""

    def __init__(self, source: _Source, tables: Iterable[Table]) -> None:
        super().__init__((table.name, table) for table in tables)
        self._source = source
        self._source_id = source.id

    def sql(self, query: str, *parameters: Any) -> Rows:
        """Return the rows of one SELECT over all tables of the context."""
        return self._source.sql(query, parameters)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.values()))


class TablesView:
    """`ctx` over tables: `sql`, `tables` and `describe`; texts have other methods."""

    def __init__(self, payload: Table | Tables) -> None:
        self._payload = payload
        self.tables: dict[str, Table]
        if isinstance(payload, Table):
            self.tables = {payload.name: payload}
        else:
            self.tables = dict(payload)

    def sql(self, query: str, *parameters: Any) -> Rows:
        """Return the rows of one SELECT over all tables of the context."""
        return self._payload.sql(query, *parameters)

    def describe(self) -> str:
        """Describe the tables with their columns and sizes, never their values."""
        return "\n".join(map(repr, self.tables.values()))

    def __repr__(self) -> str:
        return f"<ctx: {counted(len(self.tables), 'table')}; sql tables describe>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        table = next(iter(self.tables.values()))
        column = table.columns[0] if table.columns else "column"
        example = f"'select * from {table.name} where \"{column}\" like ?'"  # noqa: S608
        raise AttributeError(
            f"ctx.{name} works on texts, but the context is data for SQL; write, for example, "
            f"ctx.sql({example}, '%word%')"
        )

    def _peek(self, n: int = 2000) -> str:
        """Return the first rows of each table, as text of at most n characters."""
        parts = (f"{table!r}\n{table.head(3)}" for table in self.tables.values())
        return "\n".join(parts)[:n]

    _tail = _peek  # The order of rows means nothing.

    def _length(self) -> int:
        """Return the number of rows of all tables."""
        return sum(map(len, self.tables.values()))


def made_tables(told: dict[str, Any], answer_of: AnswerOf) -> Table | Tables:
    """Return the context that a manifest of tables describes."""
    source = _Source(told["id"], answer_of)
    tables = [Table(source, each) for each in told["tables"]]
    return tables[0] if len(tables) == 1 else Tables(source, tables)


def _request(source_id: str, method: str, arguments: dict[str, Any]) -> Dialogue:
    """Ask the host for rows: a dialogue of one call."""
    given = {"source": source_id, "method": method, "arguments": arguments}
    answer = yield question("data", wire.to_json(given), [])
    meta(answer, QueryFailed)
    told = json.loads(answer.text(1))
    columns = _distinct(told["columns"])
    rows = [dict(zip(columns, row)) for row in told["rows"]]  # noqa: B905
    return Rows(rows, columns, told["is_cut"])


def _distinct(columns: list[str]) -> list[str]:
    """Return the names of columns; append a number to repeated ones."""
    names: dict[str, None] = {}
    for column in columns:
        name, number = column, 2
        while name in names:
            name, number = f"{column}_{number}", number + 1
        names[name] = None
    return list(names)


def _parameter(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return str(value)


def _shown(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else str(value)
    text = " ".join(text.split()) if not text.isprintable() else text
    return text if len(text) <= _CELL_CHARS else f"{text[: _CELL_CHARS - 1]}…"
