"""Write the results as Markdown: the table with goals, processor time, growth, the machine."""

import statistics
from typing import Any

from benchmarks.engines import ENGINES
from benchmarks.engines.growing import AXES, LINEAR, exponent
from benchmarks.engines.rows import GROUPS, Row
from benchmarks.engines.summary import format_number, median_of

__all__ = ["growth_lines", "page", "table_lines"]

_NOTHING = "–"
_HEAD = """\
# What the engine costs

Written by `make bench`; [benchmarks](../README.md) explains the rows and how to read them.
Medians of one run, contenders in turn, no model asked. {quick}All samples: [{file}]({file}).

![What each engine costs, in multiples of our goals](engine.svg)
"""
_GROWTH = """\
## How costs grow

Processor seconds of rlm and its sandboxes together, at growing sizes. The power is that of a
fitted curve, after what the smallest size costs was taken off: 1 is linear, and up to {linear:g} is
called so.

![How costs of rlm grow](engine-growth.svg)
"""


def page(found: dict[str, Any], file: str) -> str:
    """Return the whole page; `file` holds the samples."""
    quick = "**Tiny sizes, one round: these figures mean nothing.** " if found["quick"] else ""
    parts = [
        _HEAD.format(quick=quick, file=file),
        "\n".join(table_lines(found)),
        "\n".join(_contenders(found)),
        "## Processor time\n\nOf the engine's process and all below it, for the same units.\n",
        "\n".join(_cpu_lines(found)),
        _GROWTH.format(linear=LINEAR),
        "\n".join(growth_lines(found)),
        "## The machine\n",
        "\n".join(_machine(found)),
    ]
    return "\n".join(part if part.endswith("\n") else part + "\n" for part in parts)


def table_lines(found: dict[str, Any]) -> list[str]:
    """Return a line for each row with all contenders, and whether our goal is met."""
    engines = list(found["versions"])
    lines = _rule(["what", "", "goal", *engines, "met"], numbers=range(2, 3 + len(engines)))
    for name, group in GROUPS.items():
        for row in group.rows if name in found["groups"] else ():
            cells = [_cell(found, name, row, engine) for engine in engines]
            lines.append(_joined([row.name, row.unit, _goal(row), *cells, _met(found, name, row)]))
    remarks = _remarks(found)
    return [*lines, "", *remarks] if remarks else lines


def _cell(found: dict[str, Any], group: str, row: Row, engine: str) -> str:
    value = median_of(found, group, engine, row.metric)
    return _NOTHING if value is None else format_number(row.shown(value))


def _goal(row: Row) -> str:
    return _NOTHING if row.goal is None else f"{'≥' if row.more_is_better else '≤'} {row.goal:g}"


def _met(found: dict[str, Any], group: str, row: Row) -> str:
    value = median_of(found, group, "rlm", row.metric)
    if value is None or row.goal is None:
        return ""
    if row.is_met(row.shown(value)):
        return "yes"
    return f"**no**{', nor is a peer better' if _is_best(found, group, row, value) else ''}"


def _is_best(found: dict[str, Any], group: str, row: Row, ours: float) -> bool:
    others = [
        median_of(found, group, engine, row.metric)
        for engine in found["versions"]
        if engine != "rlm"
    ]
    return all(other is None or ours <= other for other in others)


def _remarks(found: dict[str, Any]) -> list[str]:
    """Return why a cell is empty, and which setting was the better one."""
    lines = []
    for name, measured in found["groups"].items():
        title = GROUPS[name].rows[0].name
        for engine, reported in measured["engines"].items():
            if reason := reported.get("cannot") or reported.get("error"):
                lines.append(f"- {engine}, {title}: {reason.splitlines()[0]}.")
            elif shipped := reported.get("metrics", {}).get("as_shipped_seconds"):
                least = format_number(statistics.median(shipped))
                lines.append(
                    f"- {engine}, {title}: {least} s as shipped; the better of that and "
                    "128 at once is shown."
                )
    return lines


def _contenders(found: dict[str, Any]) -> list[str]:
    return [
        "Contenders:",
        "",
        *(
            f"- **{name}** {version}: {ENGINES[name].about}"
            for name, version in found["versions"].items()
        ),
        "",
    ]


def _cpu_lines(found: dict[str, Any]) -> list[str]:
    engines = list(found["versions"])
    lines = _rule(["what", "", *engines], numbers=range(2, 2 + len(engines)))
    for name, group in GROUPS.items():
        row = group.rows[-1 if name == "crowd" else 0]
        values = [median_of(found, name, engine, "cpu_seconds") for engine in engines]
        if any(value is not None for value in values):
            cells = [_NOTHING if v is None else format_number(v * 1e3) for v in values]
            lines.append(_joined([_unit_of(row), "ms", *cells]))
    return lines


def _unit_of(row: Row) -> str:
    """Return the name of the row for CPU time, which is measured over the whole run."""
    return row.name.replace(": until the first step is done", ": a run of four steps").replace(
        ": time, ideal is 1", ""
    )


def growth_lines(found: dict[str, Any]) -> list[str]:
    """Return how costs grow along each axis."""
    lines = _rule(["more", "from", "to", "CPU for one more", "power", ""], numbers=range(1, 5))
    for name, curve in found["growth"].items():
        axis, sizes = AXES[name], curve["sizes"]
        if "error" in curve:
            lines.append(_joined([axis.title, "", "", "", "", curve["error"].splitlines()[0]]))
            continue
        costs = curve["cpu_seconds"]
        each = (costs[-1] - costs[0]) / (sizes[-1] - sizes[0]) * axis.units_each
        power = exponent(sizes, costs)
        ends = [f"{size / axis.units_each:,.0f}" for size in (sizes[0], sizes[-1])]
        cost = f"{format_number(each * 1e3)} ms a {axis.unit}"
        reported = _NOTHING if power is None else f"{power:.2f}"
        lines.append(_joined([axis.title, *ends, cost, reported, _in_words(power)]))
    return lines


def _in_words(power: float | None) -> str:
    if power is None:
        return "does not grow"
    return "not worse than linear" if power <= LINEAR else "**worse than linear**"


def _machine(found: dict[str, Any]) -> list[str]:
    facts = {**found["machine"], "revision": found["revision"] or "unknown"}
    if "resumed" in found:
        facts["went on at"] = ", ".join(found["resumed"])
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items())]


def _rule(heads: list[str], numbers: range) -> list[str]:
    marks = ["--:" if place in numbers else "---" for place in range(len(heads))]
    return [_joined(heads), f"|{'|'.join(marks)}|"]


def _joined(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
