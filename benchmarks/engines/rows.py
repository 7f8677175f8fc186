"""The rows of the table: what is measured, in which scenario, and our goals."""

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["GROUPS", "Group", "Row", "Unit"]

Unit = Literal["ms", "s", "CPU-s", "MB", "KB", "×", "of 200"]


@dataclass(frozen=True)
class Row:
    """One row. `goal` is in the unit that is shown; most goals are upper bounds."""

    name: str
    metric: str
    unit: Unit
    goal: float | None = None
    more_is_better: bool = False

    def shown(self, value: float) -> float:
        """Convert a sample, in seconds or bytes, to the unit of the row."""
        return value * {"ms": 1e3, "MB": 1e-6, "KB": 1e-3}.get(self.unit, 1.0)

    def is_met(self, value: float) -> bool | None:
        """Return whether a value in the row's unit meets the goal; None without a goal."""
        if self.goal is None:
            return None
        return value >= self.goal if self.more_is_better else value <= self.goal


@dataclass(frozen=True)
class Group:
    """Rows measured by one scenario. `quick` replaces options in a quick run."""

    name: str
    scenario: str
    rows: tuple[Row, ...]
    options: dict[str, Any] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    turns: int = 3
    timeout_seconds: float = 240.0
    needs_bytes: int = 0


def _both(name: str, rows: dict[str, Row], scenario: str, **given: Any) -> list[Group]:
    """Return the rows with a model in the process and over HTTP."""
    options = given.pop("options")
    return [
        Group(f"{name}-{way}", scenario, (row,), {**options, "http": way == "http"}, **given)
        for way, row in rows.items()
    ]


_WALL = "wall_seconds"
_CROWD = {"runs": 200, "replies": 3, "delay_ms": 1_000}

_STARTS = [
    Group(
        "import",
        "import",
        (
            Row("import of the package", "package", "CPU-s", 0.03),
            Row("import of the class `RLM`", "class", "CPU-s", 0.12),
        ),
        {"rounds": 7},
        {"rounds": 2},
    ),
    Group(
        "first",
        "first_run",
        (
            Row("run of one step: first of a process, imports not counted", _WALL, "ms", 120),
            Row("from the start of a process to its first answer", "start_seconds", "ms"),
        ),
        turns=9,
    ),
    Group(
        "not-ready",
        "further_runs",
        (Row("run of one step: a further one, no session kept ready", _WALL, "ms", 25),),
        {"rounds": 15, "kept_ready": False},
        {"rounds": 3},
    ),
    Group(
        "ready",
        "further_runs",
        (Row("run of one step: a further one, a session kept ready", _WALL, "ms", 5),),
        {"rounds": 15, "kept_ready": True},
        {"rounds": 3},
    ),
]

_TALK = [
    *_both(
        "step",
        {
            "stub": Row("one more step, model in the process", _WALL, "ms", 0.5),
            "http": Row("one more step, model over HTTP", _WALL, "ms", 3),
        },
        "steps",
        options={"rounds": 5, "steps": 100},
        quick={"rounds": 1, "steps": 10},
    ),
    *_both(
        "call",
        {
            "stub": Row(
                "`llm_query`, one of 1,000 in a row, model in the process", _WALL, "ms", 0.15
            ),
            "http": Row("`llm_query`, one of 1,000 in a row, over HTTP", _WALL, "ms", 1.5),
        },
        "calls",
        options={"rounds": 3, "calls": 1_000},
        quick={"rounds": 1, "calls": 50},
    ),
    *_both(
        "batch",
        {
            "stub": Row(
                "batch of 1,000 × 50 ms, 128 at once, model in the process", _WALL, "s", 0.5
            ),
            "http": Row("batch of 1,000 × 50 ms, 128 at once, over HTTP", _WALL, "s", 1.0),
        },
        "batch",
        options={"rounds": 3, "calls": 1_000, "at_once": 128, "delay_ms": 50},
        quick={"rounds": 1, "calls": 50},
    ),
]

_SIZES = [
    Group(
        "100MB",
        "context",
        (
            Row("context of 100 MB: until the first step is done", _WALL, "s", 0.1),
            Row("context of 100 MB: one more step", "step_seconds", "ms"),
        ),
        {"size": 100_000_000, "steps": 4, "memory": False},
        {"size": 1_000_000},
    ),
    Group(
        "100MB-memory",
        "context",
        (Row("context of 100 MB: memory beyond the caller's text", "peak_bytes", "MB"),),
        {"size": 100_000_000, "steps": 4, "memory": True},
        {"size": 1_000_000},
        turns=2,
    ),
    Group(
        "1GiB",
        "context",
        (Row("context of 1 GiB: until the first step is done", _WALL, "s", 1.0),),
        {"size": 1 << 30, "steps": 4, "memory": False},
        {"size": 10_000_000},
        turns=3,
        needs_bytes=6 << 30,
    ),
    Group(
        "1GiB-memory",
        "context",
        (
            Row(
                "context of 1 GiB: copies in memory beyond the caller's own",
                "copies",
                "×",
                1.1,
            ),
        ),
        {"size": 1 << 30, "steps": 4, "memory": True},
        {"size": 10_000_000},
        turns=1,
        needs_bytes=6 << 30,
    ),
]

_CROWDS = [
    Group(
        "children",
        "children",
        (Row("8 child runs, zero latency", _WALL, "ms", 60),),
        {"rounds": 5, "count": 8},
        {"rounds": 1, "count": 2},
    ),
    Group(
        "log",
        "log",
        (Row("log of a context of 10 MB, 5 steps", "bytes", "KB", 100),),
        {"size": 10_000_000, "steps": 5},
        {"size": 100_000},
        turns=1,
    ),
    Group(
        "crowd",
        "crowd",
        (
            Row("200 runs at once: right answers", "right", "of 200", 200, more_is_better=True),
            Row("200 runs at once: time, ideal is 1", "of_ideal", "×", 1.5),
        ),
        _CROWD,
        {"runs": 8, "delay_ms": 50},
        turns=2,
    ),
]

GROUPS: dict[str, Group] = {each.name: each for each in (*_STARTS, *_TALK, *_SIZES, *_CROWDS)}
