"""Find the tables of a page by the lines drawn around cells, or by aligned columns."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rlm.context.documents.tables import table

__all__ = ["Rule", "Segment", "Table", "find_tables", "join_rules"]

_NEAR = 3.0
_MAX_RULES, _MAX_SEGMENTS = 500, 20_000
"""A page with more is a drawing, and comparing them all would take too long."""

_MIN_ROWS, _MIN_CELLS = 3, 4
_MAX_DISTANCE = 1.5
"""How far apart the rows of a table without lines may be, in row heights."""

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
    """Part of a line of text without wide gaps, and its position; y grows upwards."""

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
    """Return the tables of a page; no segment is in two of them."""
    if len(segments) > _MAX_SEGMENTS:
        return []
    found: list[Table] = []
    left = list(segments)
    for group in sorted(_crossing(rules), key=_area):
        made = _ruled(group, left)
        if made is not None:
            found.append(made)
            taken = {id(each) for each in made.segments}
            left = [each for each in left if id(each) not in taken]
    return [*found, *_aligned(left)]


def join_rules(rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules of a page, joined where they continue each other.

    Programs draw each border of each cell. A page with too many is a drawing and has no rules.
    """
    found: list[Rule] = []
    for each in sorted(rules, key=_place):
        last = found[-1] if found else None
        if last is not None and last.is_horizontal == each.is_horizontal and _touch(last, each):
            found[-1] = Rule(
                min(last.x0, each.x0),
                min(last.y0, each.y0),
                max(last.x1, each.x1),
                max(last.y1, each.y1),
            )
        else:
            found.append(each)
    return found if len(found) <= _MAX_RULES else []


def _place(rule: Rule) -> tuple[bool, int, float]:
    """Return a sort key that puts rules which may continue each other side by side."""
    across, along = (rule.y0, rule.x0) if rule.is_horizontal else (rule.x0, rule.y0)
    return rule.is_horizontal, round(across / _NEAR), along


def _area(group: Sequence[Rule]) -> float:
    width = max(each.x1 for each in group) - min(each.x0 for each in group)
    return width * (max(each.y1 for each in group) - min(each.y0 for each in group))


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
        bands = [
            [each for each in inside if _band(ys, each) == band] for band in range(len(ys) - 1)
        ]
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
    """Return the index, from below, of the row that contains the middle of a segment."""
    middle = (segment.y0 + segment.y1) / 2
    return min(max(sum(1 for y in ys if y <= middle) - 1, 0), len(ys) - 2)


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
    """Return runs of rows whose cells are in the same columns."""
    found: list[Table] = []
    run = _Run()
    for row in [*_visual_rows(segments), []]:
        if len(row) >= 2 and run.add(row):
            continue
        made = run.table()
        if made is not None:
            found.append(made)
        run = _Run()
        if len(row) >= 2:
            run.add(row)
    return found


def _visual_rows(segments: Iterable[Segment]) -> list[list[Segment]]:
    """Return groups of segments that are side by side, from the top of the page."""
    rows: list[list[Segment]] = []
    for each in sorted(segments, key=lambda each: -(each.y0 + each.y1)):
        middle = (each.y0 + each.y1) / 2
        if rows and rows[-1][0].y0 <= middle <= rows[-1][0].y1:
            rows[-1].append(each)
        else:
            rows.append([each])
    return [sorted(row) for row in rows]


class _Run:
    """Consecutive rows, and the columns that their cells fill."""

    def __init__(self) -> None:
        self._rows: list[list[Segment]] = []
        self._columns: list[tuple[float, float]] = []
        self._width = 0

    def add(self, row: list[Segment]) -> bool:
        """Add a row, unless it is far below the others or one of its cells spans two columns."""
        columns = _merged([*self._columns, *((each.x0, each.x1) for each in row)])
        width = max(self._width, len(row))
        if len(columns) < width or (self._rows and not self._is_near(row)):
            return False
        self._rows.append(row)
        self._columns, self._width = columns, width
        return True

    def table(self) -> Table | None:
        """Return the rows as a table, unless they may be lines of prose in columns."""
        if len(self._rows) < _MIN_ROWS or len(self._columns) < 2:
            return None
        cells = [each for row in self._rows for each in row]
        mean = sum(len(each.text) for each in cells) / len(cells)
        is_prose = mean > _FEW_CHARS and self._fill(cells) > _MAX_FILL
        if mean > _MAX_MEAN_CHARS or is_prose:
            return None
        if len(self._columns) == 2 and not _is_numeric([row[-1] for row in self._rows]):
            return None
        grid = [[""] * len(self._columns) for _ in self._rows]
        for line, row in zip(grid, self._rows, strict=True):
            for each in row:
                column = self._column(each)
                line[column] = f"{line[column]} {each.text}".strip()
        return Table(table(grid), cells)

    def _is_near(self, row: list[Segment]) -> bool:
        above = self._rows[-1][0]
        return above.y0 - row[0].y1 <= _MAX_DISTANCE * (above.y1 - above.y0)

    def _fill(self, cells: Sequence[Segment]) -> float:
        """Return how much of the width of its column a cell takes, on average."""
        spans = [self._columns[self._column(each)] for each in cells]
        whole = sum(x1 - x0 for x0, x1 in spans)
        return sum(each.x1 - each.x0 for each in cells) / whole if whole else 1.0

    def _column(self, segment: Segment) -> int:
        return next(i for i, (x0, x1) in enumerate(self._columns) if x0 <= segment.x0 <= x1)


def _merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return spans, with overlapping ones merged."""
    found: list[tuple[float, float]] = []
    for x0, x1 in sorted(spans):
        if found and x0 <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], x1))
        else:
            found.append((x0, x1))
    return found


def _is_numeric(cells: Sequence[Segment]) -> bool:
    """Return whether most cells are numbers, dates or amounts, which columns of prose are not."""
    short = [each for each in cells if len(each.text) <= 20 and any(map(str.isdigit, each.text))]
    return len(short) > 0.6 * len(cells)
