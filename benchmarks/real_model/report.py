"""Write the table and the plots of the trials: accuracy and tokens against context size."""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlm.bench.plan import show_size
from rlm.bench.report.svg import Point, Series, chart
from rlm.bench.report.writing import interval

__all__ = ["SETUP", "Row", "rows_of", "write_report"]

METHODS = ("plain", "operators", "mapreduce", "loop", "reference")
"""In the order of tables and colours."""
REPORT, SETUP = "report.md", "setup.json"
_NOTHING = "–"
_HEAD = """\
# Trials with a real model

A hit is an answer with the full score. Intervals are Wilson's, at 95 %: if two overlap widely, the
samples are too few to tell them apart. Calls, tokens and seconds are means of a trial; tokens are
those that the endpoint reported, where the engine tells them. A plain call is *too large* for
contexts that the window does not hold: no hit, drawn hollow. Trials that failed because of the
endpoint are not counted.
"""


class Row(NamedTuple):
    """Figures of one task, method and size."""

    task: str
    method: str
    size: int
    samples: int
    hits: int
    score: float
    low: float
    high: float
    too_large: int
    limited: int
    failed: int
    calls: float
    tokens: float
    token_range: tuple[float, float]
    seconds: float


def rows_of(lines: Sequence[dict[str, Any]]) -> list[Row]:
    """Return one row for each task, method and size, in order."""
    groups: dict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[line["task"], METHODS.index(line["method"]), line["size"]].append(line)
    return [
        _row(task, METHODS[number], size, groups[task, number, size])
        for task, number, size in sorted(groups)
    ]


def _row(task: str, method: str, size: int, lines: list[dict[str, Any]]) -> Row:
    done = [line for line in lines if line["status"] != "failed"]
    hits = sum(line["score"] >= 1 for line in done)
    ran = [line for line in done if line["status"] != "too large"]
    low, high = interval(hits / len(done), len(done)) if done else (0.0, 1.0)
    known = [line for line in ran if line["input_tokens"] is not None]
    tokens = sorted(float(line["input_tokens"] + (line["output_tokens"] or 0)) for line in known)
    return Row(
        task=task,
        method=method,
        size=size,
        samples=len(done),
        hits=hits,
        score=_mean([line["score"] for line in done]),
        low=low,
        high=high,
        too_large=len(done) - len(ran),
        limited=sum(line["status"] == "limit" for line in done),
        failed=len(lines) - len(done),
        calls=_mean([line["calls"] for line in ran if line["calls"] is not None]),
        tokens=_mean(tokens),
        token_range=(tokens[0], tokens[-1]) if tokens else (0.0, 0.0),
        seconds=_mean([line["seconds"] for line in ran]),
    )


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0


def write_report(lines: Sequence[dict[str, Any]], folder: Path) -> Path:
    """Write `report.md` and two plots for each task, and return the path of the report."""
    rows = rows_of(lines)
    parts = [_HEAD, *_setup_lines(folder)]
    for task in dict.fromkeys(row.task for row in rows):
        own = [row for row in rows if row.task == task]
        names = {row.size: show_size(row.size) for row in own}
        for kind, unit, top in (("accuracy", "hits, percent", 100.0), ("tokens", "tokens", None)):
            series = list(_series(own, kind))
            if series:
                picture = chart(f"{task}: {kind}", unit, series, size_names=names, top=top)
                (folder / f"{task}-{kind}.svg").write_text(picture, "utf-8")
        parts += [f"## {task}", ""]
        parts += [f"![{task}: {kind}]({task}-{kind}.svg)" for kind in ("accuracy", "tokens")]
        parts += ["", *_table(own), ""]
    path = folder / REPORT
    path.write_text("\n".join(parts) + "\n", "utf-8")
    return path


def _setup_lines(folder: Path) -> list[str]:
    """Say which model the folder is about, and what a trial might use."""
    path = folder / SETUP
    if not path.exists():
        return []
    facts = json.loads(path.read_text("utf-8"))
    told = (
        f"Model: **{facts['model']}**, window {facts['window_tokens']:,} tokens. A trial may use "
        f"{facts['max_calls']:,} calls, {facts['max_tokens']:,} tokens and "
        f"{facts['max_seconds']:g} s; a reply {facts['reply_tokens']:,} tokens."
    )
    return [told, ""]


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield "| method | size | n | hits | 95 % | score | calls | tokens | seconds | remarks |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
    for row in rows:
        ran = row.samples > row.too_large
        remarks = [
            f"{count} {words}"
            for count, words in (
                (row.too_large, "too large"),
                (row.limited, "at a limit"),
                (row.failed, "failed, not counted"),
            )
            if count
        ]
        figures = (
            [f"{row.calls:.1f}", f"{row.tokens:,.0f}", f"{row.seconds:.1f}"]
            if ran
            else [_NOTHING] * 3
        )
        spread = f"{100 * row.low:.0f}–{100 * row.high:.0f}" if ran else _NOTHING
        cells = [row.method, show_size(row.size), str(row.samples), str(row.hits), spread]
        cells += [f"{row.score:.2f}", *figures, ", ".join(remarks)]
        yield f"| {' | '.join(cells)} |"


def _series(rows: Sequence[Row], kind: str) -> Iterator[Series]:
    for number, method in enumerate(METHODS):
        own = [row for row in rows if row.method == method and row.samples]
        if kind == "tokens":
            own = [row for row in own if row.samples > row.too_large]
            points = [Point(row.size, row.tokens, *row.token_range) for row in own]
        else:
            points = [
                Point(
                    row.size,
                    100 * row.hits / row.samples,
                    100 * row.low,
                    100 * row.high,
                    row.too_large == row.samples,
                )
                for row in own
            ]
        if points:
            yield Series(method, points, number)
