"""Find the tables of a page: by the lines that are drawn around cells, or by aligned columns."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rlm.context.documents.tables import table

__all__ = ["Rule", "Segment", "Table", "find_tables"]

_NEAR = 3.0
_MAX_RULES, _MAX_SEGMENTS = 3_000, 20_000
"""A page with more is a drawing, and comparing all of them would take long."""

_MIN_ROWS, _MIN_CELLS = 3, 4
_MAX_MEAN_CHARS, _MAX_FILL, _FEW_CHARS = 30, 0.8, 15
"""Columns of prose have long lines that fill them; cells of a table are short and ragged."""


class Rule(NamedTuple):
    """A drawn line, horizontal or vertical."""

    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def is_horizontal(self) -> bool:
        return self.x1 - self.x0 >= self.y1 - self.y0


class Segment(NamedTuple):
    """Text of a line without wide gaps, and where it is; y grows upwards."""

    x0: float
    y0: float
    x1: float
    y1: float
    text: str


class Table(NamedTuple):
    """A table as Markdown, and the text that it is made of."""

    text: str
    segments: list[Segment]


def find_tables(segments: Sequence[Segment], rules: Sequence[Rule]) -> list[Table]:
    """Return the tables of a page."""
    if len(segments) > _MAX_SEGMENTS:
        return []
    found = []
    if len(rules) <= _MAX_RULES:
        for group in _crossing(rules):
            inside = _ruled(group, segments)
            if inside is not None:
                found.append(inside)
    taken = {id(each) for one in found for each in one.segments}
    return [*found, *_aligned([each for each in segments if id(each) not in taken])]


# -- tables with lines ----------------------------------------------------------------------------


def _crossing(rules: Sequence[Rule]) -> list[list[Rule]]:
    """Return groups of rules that touch each other."""
    groups: list[list[Rule]] = []
    left = list(rules)
    while left:
        group, waiting = [], [left.pop()]
        while waiting:
            current = waiting.pop()
            group.append(current)
            touching = [each for each in left if _touch(current, each)]
            if touching:
                waiting.extend(touching)
                left = [each for each in left if not _touch(current, each)]
        if len(group) > _MIN_ROWS:
            groups.append(group)
    return groups


def _touch(one: Rule, other: Rule) -> bool:
    return (
        one.x0 <= other.x1 + _NEAR
        and other.x0 <= one.x1 + _NEAR
        and one.y0 <= other.y1 + _NEAR
        and other.y0 <= one.y1 + _NEAR
    )


def _ruled(group: Sequence[Rule], segments: Iterable[Segment]) -> Table | None:
    """Return the table that a grid of rules holds, if it is one."""
    xs = _distinct(each.x0 for each in group if not each.is_horizontal)
    ys = _distinct(each.y0 for each in group if each.is_horizontal)
    if len(xs) < 2 or len(ys) < 2:
        return None
    left, right = min(each.x0 for each in group), max(each.x1 for each in group)
    xs = _distinct([*xs, left, right])
    inside = [
        each
        for each in segments
        if left <= (each.x0 + each.x1) / 2 <= right and ys[0] <= (each.y0 + each.y1) / 2 <= ys[-1]
    ]
    if len(xs) < 3:
        return None
    if len(ys) > 2:
        bands = [[each for each in inside if _band(ys, each) == band] for band in range(len(ys) - 1)]
        rows = [_cells(xs, band) for band in reversed(bands)]
    else:
        rows = [_cells(xs, row) for row in _visual_rows(inside)]
    rows = [row for row in rows if any(row)]
    filled = sum(1 for row in rows for cell in row if cell)
    if len(rows) < 2 or filled < _MIN_CELLS:
        return None
    used = [column for column in range(len(xs) - 1) if any(row[column] for row in rows)]
    if len(used) < 2:
        return None
    return Table(table([[row[column] for column in used] for row in rows]), inside)


def _band(ys: Sequence[float], segment: Segment) -> int:
    """Return the index of the row, counted from below, that the middle of a segment is in."""
    middle = (segment.y0 + segment.y1) / 2
    return max(sum(1 for y in ys if y <= middle) - 1, 0)


def _cells(xs: Sequence[float], segments: Iterable[Segment]) -> list[str]:
    """Return the text of each column in reading order; a merged cell is in its first column."""
    columns: list[list[str]] = [[] for _ in range(len(xs) - 1)]
    for each in sorted(segments, key=lambda each: (-round(each.y1), each.x0)):
        index = sum(1 for x in xs if x <= each.x0 + _NEAR) - 1
        columns[min(max(index, 0), len(columns) - 1)].append(each.text)
    return [" ".join(column) for column in columns]


def _distinct(numbers: Iterable[float]) -> list[float]:
    found: list[float] = []
    for each in sorted(numbers):
        if not found or each - found[-1] > _NEAR:
            found.append(each)
    return found


# -- tables without lines -------------------------------------------------------------------------


def _aligned(segments: Sequence[Segment]) -> list[Table]:
    """Return runs of rows whose cells stand in the same columns."""
    found: list[Table] = []
    run: list[list[Segment]] = []
    for row in [*_visual_rows(segments), []]:
        if len(row) >= 2 and (not run or _columns([*run, row]) is not None):
            run.append(row)
            continue
        made = _table_of(run)
        if made is not None:
            found.append(made)
        run = [row] if len(row) >= 2 else []
    return found


def _visual_rows(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Return segments that stand beside each other, from the top of the page."""
    rows: list[list[Segment]] = []
    for each in sorted(segments, key=lambda each: -(each.y0 + each.y1)):
        middle = (each.y0 + each.y1) / 2
        if rows and rows[-1][0].y0 <= middle <= rows[-1][0].y1:
            rows[-1].append(each)
        else:
            rows.append([each])
    return [sorted(row) for row in rows]


def _columns(rows: Sequence[Sequence[Segment]]) -> list[tuple[float, float]] | None:
    """Return the columns of rows; None if a row has two cells in one, or the columns merge."""
    spans: list[tuple[float, float]] = []
    for x0, x1 in sorted((each.x0, each.x1) for row in rows for each in row):
        if spans and x0 <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], x1))
        else:
            spans.append((x0, x1))
    if len(spans) < max(len(row) for row in rows):
        return None
    return spans


def _table_of(rows: Sequence[Sequence[Segment]]) -> Table | None:
    columns = _columns(rows) if len(rows) >= _MIN_ROWS else None
    if columns is None or len(columns) < 2:
        return None
    cells = [each for row in rows for each in row]
    mean = sum(len(each.text) for each in cells) / len(cells)
    if mean > _MAX_MEAN_CHARS:
        return None
    widths = {x0: x1 - x0 for x0, x1 in columns}
    fill = sum(each.x1 - each.x0 for each in cells) / sum(
        widths[_column(columns, each)] for each in cells
    )
    if mean > _FEW_CHARS and fill > _MAX_FILL:
        return None
    if len(columns) == 2 and not _is_numeric([row[-1] for row in rows]):
        return None
    starts = [x0 for x0, _ in columns]
    grid = [
        [" ".join(each.text for each in row if _column(columns, each) == x0) for x0 in starts]
        for row in rows
    ]
    return Table(table(grid), cells)


def _column(columns: Sequence[tuple[float, float]], segment: Segment) -> float:
    return next(x0 for x0, x1 in columns if x0 <= segment.x0 <= x1)


def _is_numeric(cells: Sequence[Segment]) -> bool:
    """Return whether most cells are numbers, dates or amounts: two columns may also be prose."""
    short = [each for each in cells if len(each.text) <= 20 and any(map(str.isdigit, each.text))]
    return len(short) > 0.6 * len(cells)
