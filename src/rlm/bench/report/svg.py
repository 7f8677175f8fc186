"""A small chart as SVG: lines with points and error bars over sizes on a logarithmic axis.

It is readable on white and on black: colours follow the reader's preference. Methods also differ in
their marks, for readers and printers without colours.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Point", "Series", "chart"]

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, HEAD, BOTTOM = 78, 24, 64, 58
LEGEND_ROW = 20
MARK = 5.0
WIDE = 30.0
"""Use a logarithmic axis if the highest value exceeds the lowest by this factor."""

SMALLEST = 1e-300
"""Smaller values are drawn as zero."""

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 16px; font-weight: 600; }
.faint { fill: #57606a; font-size: 12px; }
.paper { fill: #ffffff; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.axis { stroke: #57606a; stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.bar { stroke-width: 1.5; }
.hollow { fill: #ffffff; }
.c0 { stroke: #0969da; } .f0 { fill: #0969da; }
.c1 { stroke: #bc4c00; } .f1 { fill: #bc4c00; }
.c2 { stroke: #1a7f37; } .f2 { fill: #1a7f37; }
.c3 { stroke: #8250df; } .f3 { fill: #8250df; }
.c4 { stroke: #9a6700; } .f4 { fill: #9a6700; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .faint { fill: #9198a1; }
  .paper, .hollow { fill: #0d1117; }
  .grid { stroke: #30363d; }
  .axis { stroke: #9198a1; }
  .c0 { stroke: #58a6ff; } .f0 { fill: #58a6ff; }
  .c1 { stroke: #f0883e; } .f1 { fill: #f0883e; }
  .c2 { stroke: #3fb950; } .f2 { fill: #3fb950; }
  .c3 { stroke: #bc8cff; } .f3 { fill: #bc8cff; }
  .c4 { stroke: #d29922; } .f4 { fill: #d29922; }
}
"""
DASHES = ("", "7 4", "2 3", "9 3 2 3")


class Point(NamedTuple):
    """A value at a size, from `low` to `high`; `hollow` if nothing was run there."""

    size: int
    value: float
    low: float
    high: float
    hollow: bool = False


class Series(NamedTuple):
    """A line: its name, its points by size, and its colour, mark and dashes."""

    name: str
    points: Sequence[Point]
    colour: int
    dash: int = 0


class _Axes:
    """Maps sizes and values to the picture; values may be logarithmic too."""

    def __init__(self, sizes: Sequence[int], ticks: Sequence[float], top: int) -> None:
        self.sizes, self.ticks, self.top = sizes, ticks, top
        self._is_log = ticks[0] > 0
        first, last = math.log(sizes[0]), math.log(sizes[-1])
        pad = 0.06 * (last - first) if last > first else 1.0
        self._first, self._span = first - pad, last - first + 2 * pad

    def x(self, size: int, shift: float = 0.0) -> float:
        share = (math.log(size) - self._first) / self._span
        return LEFT + share * (WIDTH - LEFT - RIGHT) + shift

    def y(self, value: float) -> float:
        lowest, highest = self.ticks[0], self.ticks[-1]
        value = min(max(value, lowest), highest)
        if self._is_log:
            share = math.log(value / lowest) / math.log(highest / lowest)
        else:
            share = value / highest
        return HEIGHT - BOTTOM - share * (HEIGHT - self.top - BOTTOM)


def chart(
    title: str,
    unit: str,
    series: Sequence[Series],
    *,
    size_names: dict[int, str],
    top: float | None = None,
) -> str:
    """Return the text of an SVG file. `top` is the end of the axis, if it is fixed."""
    points = [point for each in series for point in each.points]
    legend, rows = _legend(series)
    ends = HEAD + LEGEND_ROW * rows
    ticks = _ticks(points) if top is None else _even_ticks(top)
    axes = _Axes(sorted({point.size for point in points}), ticks, ends)
    body = [
        f'<text class="title" x="{LEFT}" y="26">{escape(title)}</text>',
        *legend,
        *_grid(axes, size_names),
        _faint(WIDTH - RIGHT, HEIGHT - 12, "context size in tokens", "end"),
        _faint(LEFT, ends - 12, unit, "start"),
    ]
    for number, each in enumerate(series):
        shift = 6.0 * (number - (len(series) - 1) / 2)  # so that error bars stand side by side
        body += _drawn(axes, each, shift)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(title)}">\n'
        f'<style>{STYLE}</style>\n<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _faint(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="faint" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _grid(axes: _Axes, size_names: dict[int, str]) -> Iterator[str]:
    for tick in axes.ticks:
        y = axes.y(tick)
        style = "axis" if tick == axes.ticks[0] else "grid"
        yield f'<line class="{style}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_number(tick)}</text>'
    last = -math.inf
    for size in axes.sizes:
        x = axes.x(size)
        if x - last >= 34:
            last, y = x, HEIGHT - BOTTOM + 20
            yield f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{size_names[size]}</text>'


def _legend(series: Sequence[Series]) -> tuple[list[str], int]:
    """Return names with their lines, and the number of rows they take."""
    x, row, drawn = float(LEFT), 0, []
    for each in series:
        width = 52 + 7.2 * len(each.name)
        if x > LEFT and x + width > WIDTH - RIGHT:
            x, row = float(LEFT), row + 1
        y = 46 + LEGEND_ROW * row
        drawn += [_line(each, [(x, y), (x + 26, y)]), _mark(each, x + 13, y, hollow=False)]
        drawn.append(f'<text x="{x + 33:.1f}" y="{y + 4}">{escape(each.name)}</text>')
        x += width
    return drawn, row + 1


def _drawn(axes: _Axes, series: Series, shift: float) -> Iterator[str]:
    places = [(axes.x(point.size, shift), axes.y(point.value)) for point in series.points]
    yield _line(series, places)
    for point, (x, y) in zip(series.points, places, strict=True):
        low, high = axes.y(point.low), axes.y(point.high)
        if not point.hollow:
            yield (
                f'<path class="bar c{series.colour}" d="M{x:.1f} {low:.1f}V{high:.1f}'
                f'M{x - 3:.1f} {low:.1f}h6M{x - 3:.1f} {high:.1f}h6"/>'
            )
        yield _mark(series, x, y, hollow=point.hollow)


def _line(series: Series, places: Iterable[tuple[float, float]]) -> str:
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashes = f' stroke-dasharray="{DASHES[series.dash % len(DASHES)]}"' if series.dash else ""
    return f'<polyline class="line c{series.colour}" points="{way}"{dashes}/>'


def _mark(series: Series, x: float, y: float, *, hollow: bool) -> str:
    """Return a circle, a square, a triangle, a diamond or an upside-down triangle."""
    inside = "hollow" if hollow else f"f{series.colour}"
    style = f'class="{inside} c{series.colour}" stroke-width="2"'
    if series.colour == 0:
        return f'<circle {style} cx="{x:.1f}" cy="{y:.1f}" r="{MARK}"/>'
    corners = {
        1: ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        2: ((0, -1.2), (1.2, 1), (-1.2, 1)),
        3: ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
        4: ((0, 1.2), (1.2, -1), (-1.2, -1)),
    }[series.colour]
    way = " ".join(f"{x + MARK * dx:.1f},{y + MARK * dy:.1f}" for dx, dy in corners)
    return f'<polygon {style} points="{way}"/>'


def _ticks(points: Sequence[Point]) -> list[float]:
    """Return even steps from 0, or powers of ten if small values would be invisible."""
    highest = max((point.high for point in points), default=0.0)
    lowest = min((point.low for point in points), default=0.0)
    if lowest < SMALLEST or highest / lowest < WIDE:
        return _even_ticks(highest)
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    return [10.0**power for power in range(first, last + 1)]


def _even_ticks(highest: float) -> list[float]:
    """Return four to six steps from 0, of 1, 2 or 5 times a power of ten."""
    if highest < SMALLEST:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(highest / 5))
    step = next(power * each for each in (1, 2, 5, 10) if highest / (power * each) <= 5.5)
    return [number * step for number in range(math.ceil(highest / step - 1e-9) + 1)]


def _number(value: float) -> str:
    if value >= 1_000:
        for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if value >= unit:
                return f"{value / unit:g}{letter}"
    return f"{value:.4g}"
