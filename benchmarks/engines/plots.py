"""Draw two SVG plots: the distance of each engine from our goals, and how our costs grow.

Colours come in two sets, for light and dark pages; nothing is fetched.
"""

import math
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.engines.growing import AXES, exponent
from benchmarks.engines.rows import GROUPS, Row
from benchmarks.engines.summary import format_number, median_of

__all__ = ["growth_plot", "rows_plot"]

_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.small { font-size: 11px; fill: #59636e; }
.title { font-size: 15px; font-weight: 600; }
.line { stroke: #d1d9e0; fill: none; }
.goal { stroke: #59636e; stroke-width: 1.5; stroke-dasharray: 4 3; }
.rlm { fill: #0969da; stroke: #0969da; } .rlms { fill: #bc4c00; stroke: #bc4c00; }
.dspy { fill: #8250df; stroke: #8250df; }
.curve { fill: none; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .small { fill: #9198a1; } .line { stroke: #3d444d; }
  .goal { stroke: #9198a1; } .rlm { fill: #4493f8; stroke: #4493f8; }
  .rlms { fill: #f0883e; stroke: #f0883e; } .dspy { fill: #ab7df8; stroke: #ab7df8; }
}"""

_WIDTH = 920
_LEFT, _RIGHT = 430, 30
_ROW = 26
_TOP = 92
_DECADES = (-2, 4)


def _page(width: int, height: int, parts: list[str], title: str) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
    lines = [
        f'{head} aria-label="{escape(title)}">',
        f"<style>{_STYLE}\n</style>",
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    opening = f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'{opening} class="{kind}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


# -- how far from the goal ------------------------------------------------------------------------


def _mark(engine: str, x: float, y: float) -> str:
    """Return a mark whose shape differs by engine, so colour is not needed."""
    if engine == "rlm":
        return f'<circle class="rlm" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
    if engine == "rlms":
        return f'<rect class="rlms" x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10"/>'
    points = f"{x:.1f},{y - 6:.1f} {x + 6:.1f},{y + 5:.1f} {x - 6:.1f},{y + 5:.1f}"
    return f'<polygon class="dspy" points="{points}"/>'


def _place(ratio: float) -> float:
    low, high = _DECADES
    share = (math.log10(ratio) - low) / (high - low)
    return _LEFT + min(1.0, max(0.0, share)) * (_WIDTH - _LEFT - _RIGHT)


def rows_plot(found: dict[str, Any]) -> str:
    """Draw one line per row, in multiples of its goal; further left is better."""
    rows = [
        (row, name)
        for name, group in GROUPS.items()
        for row in group.rows
        if row.goal and not row.more_is_better and name in found["groups"]
    ]
    height = _TOP + _ROW * len(rows) + 34
    bottom = height - 34
    parts = [_text(20, 28, "What the engine costs, in multiples of our goal", "title")]
    parts += _legend(found)
    for decade in range(_DECADES[0], _DECADES[1] + 1):
        x = _place(10.0**decade)
        parts.append(_line(x, _TOP - 12, x, bottom, "goal" if decade == 0 else "line"))
        words = "goal" if decade == 0 else f"{10.0**decade:,g}×"
        parts.append(_text(x, bottom + 18, words, "small", "middle"))
    for number, (row, name) in enumerate(rows):
        parts += _row_marks(found, row, name, _TOP + _ROW * number + 6)
    return _page(_WIDTH, height, parts, "What each engine costs, in multiples of our goals")


def _legend(found: dict[str, Any]) -> list[str]:
    parts, x = [], 26.0
    for engine, version in found["versions"].items():
        parts += [_mark(engine, x, 52), _text(x + 14, 56, f"{engine} {version}")]
        x += 40 + 8.5 * len(f"{engine} {version}")
    return [*parts, _text(x, 56, "further left is better; the scale is logarithmic", "small")]


def _row_marks(found: dict[str, Any], row: Row, group: str, y: float) -> list[str]:
    parts = [_line(_LEFT, y, _WIDTH - _RIGHT, y)]
    words = f"{row.name.replace('`', '')} (≤ {row.goal:g} {row.unit})"
    parts.append(_text(_LEFT - 14, y + 4, words, "small", "end"))
    for engine in reversed(found["versions"]):
        value = median_of(found, group, engine, row.metric)
        if value is not None and row.goal:
            parts.append(_mark(engine, _place(row.shown(value) / row.goal), y))
    return parts


# -- growth ---------------------------------------------------------------------------------------

_PANEL_WIDTH, _PANEL_HEIGHT = 290, 210
_PAD_LEFT, _PAD_TOP, _PAD_RIGHT, _PAD_BOTTOM = 58, 46, 16, 44


def growth_plot(found: dict[str, Any]) -> str:
    """Draw one panel per axis: processor seconds against size, with linear growth."""
    names = [name for name in AXES if "cpu_seconds" in found["growth"].get(name, {})]
    columns = 3
    lines = max(1, math.ceil(len(names) / columns))
    parts = [_text(16, 26, "Processor seconds of rlm and its sandboxes", "title")]
    parts.append(_text(16, 46, "dashes: a straight line between smallest and largest", "small"))
    for number, name in enumerate(names):
        left = (number % columns) * (_PANEL_WIDTH + 10)
        top = 56 + (number // columns) * (_PANEL_HEIGHT + 8)
        parts += _panel(name, found["growth"][name], left, top)
    width = columns * (_PANEL_WIDTH + 10)
    return _page(width, 64 + lines * (_PANEL_HEIGHT + 8), parts, "How costs of rlm grow")


def _panel(name: str, curve: dict[str, Any], left: float, top: float) -> list[str]:
    axis, sizes, costs = AXES[name], curve["sizes"], curve["cpu_seconds"]
    x0, x1 = left + _PAD_LEFT, left + _PANEL_WIDTH - _PAD_RIGHT
    y0, y1 = top + _PANEL_HEIGHT - _PAD_BOTTOM, top + _PAD_TOP
    most, highest = sizes[-1], max(costs)

    def at(size: float, cost: float) -> tuple[float, float]:
        return x0 + (x1 - x0) * size / most, y0 - (y0 - y1) * cost / highest

    points = [at(size, cost) for size, cost in zip(sizes, costs, strict=True)]
    power = exponent(sizes, costs)
    words = "too even to tell" if power is None else f"power {power:.2f}"
    shown = f"{most / axis.units_each:,.0f}"
    return [
        _text(left + _PAD_LEFT, top + 20, axis.title),
        _text(left + _PAD_LEFT, top + 36, words, "small"),
        _line(x0, y0, x1, y0),
        _line(x0, y0, x0, y1),
        _line(*at(sizes[0], costs[0]), *at(most, costs[-1]), "goal"),
        f'<polyline class="curve rlm" style="fill:none" points="{_pairs(points)}"/>',
        *(f'<circle class="rlm" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in points),
        _text(x0, y0 + 18, "0", "small", "middle"),
        _text(x1, y0 + 18, f"{shown} {'MB' if axis.unit == 'MB' else ''}".strip(), "small", "end"),
        _text(x0 - 6, y1 + 4, f"{format_number(highest)} s", "small", "end"),
    ]


def _pairs(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
