"""Draw label error against tokens as SVG, one panel for each noise and error rate.

Colours come in two sets, for light and dark pages; marks differ in shape too.
"""

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from benchmarks.labelling.grid import NOISES, RATES, Case, Point, points_of
from benchmarks.labelling.methods import BASELINES, METHODS
from benchmarks.labelling.page import Found

__all__ = ["plot"]

_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.small { font-size: 11px; fill: #59636e; }
.title { font-size: 15px; font-weight: 600; }
.axis { stroke: #59636e; } .grid { stroke: #d1d9e0; stroke-width: 0.7; }
.curve { fill: none; stroke: #59636e; stroke-width: 1.5; }
.base { fill: #59636e; } .taught { fill: none; stroke: #bc4c00; stroke-width: 2; }
.own { fill: #0969da; } .all { fill: none; stroke: #8250df; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .small { fill: #9198a1; } .axis { stroke: #9198a1; }
  .grid { stroke: #3d444d; } .curve { stroke: #9198a1; } .base { fill: #9198a1; }
  .taught { stroke: #f0883e; } .own { fill: #4493f8; } .all { stroke: #ab7df8; }
}"""
_SHOWN_LABELS, _SHOWN_REPLIES = 6, "whole"
_PANEL_WIDTH, _PANEL_HEIGHT = 240, 220
_LEFT, _TOP, _PAD_LEFT, _PAD_TOP, _PAD_BOTTOM = 10, 84, 44, 34, 34
_MOST_TOKENS = 4.5


def plot(found: Found) -> str:
    """Return the text of an SVG file, for six labels and whole replies."""
    shown = {
        case: points_of(methods)
        for case, methods in found.items()
        if (case.labels, case.replies) == (_SHOWN_LABELS, _SHOWN_REPLIES)
    }
    rates = [rate for rate in RATES if any(case.rate == rate for case in shown)]
    width = _LEFT + max(3, len(rates)) * _PANEL_WIDTH + 10
    height = _TOP + len(NOISES) * _PANEL_HEIGHT + 24
    title = f"Label error against tokens: {_SHOWN_LABELS} labels, whole replies"
    parts = [_text(20, 26, title, "title"), *_legend()]
    for row, noise in enumerate(NOISES):
        for column, rate in enumerate(rates):
            case = Case(noise, _SHOWN_LABELS, _SHOWN_REPLIES, rate)
            if case in shown:
                left = _LEFT + column * _PANEL_WIDTH
                parts += _panel(case, shown[case], left, _TOP + row * _PANEL_HEIGHT)
    words = "tokens, as a multiple of one pass; wrong labels in percent: further down is better"
    parts.append(_text(width / 2, height - 8, words, "small", "middle"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
    style = f"<style>{_STYLE}\n</style>"
    return "\n".join([f'{head} aria-label="{title}">', style, *parts, "</svg>"]) + "\n"


def _legend() -> list[str]:
    parts, x = [], 26.0
    for method in METHODS:
        parts += [_mark(method, x, 52), _text(x + 11, 56, method)]
        x += 34 + 7.2 * len(method)
    return parts


def _panel(case: Case, points: dict[str, Point], left: float, top: float) -> list[str]:
    x0, x1 = left + _PAD_LEFT, left + _PANEL_WIDTH - 12
    y0, y1 = top + _PANEL_HEIGHT - _PAD_BOTTOM, top + _PAD_TOP
    highest = 100 * max(point.error for point in points.values()) * 1.08 or 1.0

    def at(point: Point) -> tuple[float, float]:
        share = (min(point.tokens, _MOST_TOKENS) - 0.5) / (_MOST_TOKENS - 0.5)
        return x0 + (x1 - x0) * share, y0 - (y0 - y1) * 100 * point.error / highest

    parts = [_text(x0, top + 20, f"{case.noise}, {100 * case.rate:g} %")]
    for value in _ticks(highest):
        y = at(Point(1, value / 100))[1]
        parts += [_line(x0, y, x1, y, "grid"), _text(x0 - 6, y + 4, f"{value:g}", "small", "end")]
    for times in (1, 2, 3, 4):
        x = at(Point(times, 0))[0]
        parts += [_line(x, y0, x, y0 + 4, "axis")]
        parts += [_text(x, y0 + 17, f"{times}×", "small", "middle")]
    parts.append(_line(x0, y0, x1, y0, "axis"))
    curve = [at(point) for point in sorted(points[name] for name in BASELINES)]
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*curve, (x1, curve[-1][1])])
    parts.append(f'<polyline class="curve" points="{way}"/>')
    on_top = sorted(METHODS, key=lambda name: name == "classify")
    parts += [_mark(name, *at(points[name])) for name in on_top]
    return parts


def _mark(method: str, x: float, y: float) -> str:
    if method == "classify":
        return f'<circle class="own" cx="{x:.1f}" cy="{y:.1f}" r="5.5"/>'
    if method == "as taught":
        return f'<path class="taught" d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>'
    if method not in BASELINES:
        return _polygon("all", x, y, ((0, -9), (9, 0), (0, 9), (-9, 0)))
    corners = {
        "one pass": ((0, -5), (5, 4), (-5, 4)),
        "two passes": ((-4, -4), (4, -4), (4, 4), (-4, 4)),
        "vote of three": ((0, 5), (5, -4), (-5, -4)),
    }[method]
    return _polygon("base", x, y, corners)


def _polygon(kind: str, x: float, y: float, corners: Sequence[tuple[float, float]]) -> str:
    way = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon class="{kind}" points="{way}"/>'


def _ticks(highest: float) -> list[float]:
    power = 10.0 ** math.floor(math.log10(highest / 4))
    step = next(power * each for each in (1, 2, 5, 10) if highest / (power * each) <= 5)
    return [number * step for number in range(int(highest / step) + 1)]


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    opening = f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'{opening} class="{kind}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
