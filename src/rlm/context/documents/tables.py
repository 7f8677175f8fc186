"""Tables in Markdown."""

from collections.abc import Iterable, Mapping, Sequence

from rlm.context.documents.formats import Refused

__all__ = ["sparse_table", "table"]

_MAX_CELLS = 50_000_000


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first row is its header; short rows are padded."""
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if not rows:
        return ""
    width = max(len(row) for row in rows)
    lines = [_line([*map(_cell, row), *([""] * (width - len(row)))]) for row in rows]
    lines.insert(1, _line(["---"] * width))
    return "\n".join(lines)


def sparse_table(rows: Iterable[Mapping[int, str]]) -> str:
    """Return a table of cells by column; rows and columns without any cell are left out.

    A sheet may have two cells, millions of rows and thousands of columns apart.
    """
    kept = [row for row in rows if row]
    columns = sorted({column for row in kept for column in row})
    if not columns:
        return ""
    if len(kept) * len(columns) > _MAX_CELLS:
        size = f"{len(kept):,} rows and {len(columns):,} columns"
        raise Refused(f"it has a table of {size}; pass part of it")
    lines = [_line([_cell(row.get(column, "")) for column in columns]) for row in kept]
    lines.insert(1, _line(["---"] * len(columns)))
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
