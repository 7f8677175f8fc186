"""What a notebook shows of a run, made from its events, while it runs and when it has ended."""

import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from rlm._util.html_card import Bar, Card, CellNote, StepNote
from rlm._util.text import counted
from rlm.citations import Citation, warning_of
from rlm.events import (
    CallEnded,
    CellEnded,
    CellStarted,
    Event,
    ModelReplied,
    RunEnded,
    RunStarted,
    StepStarted,
)
from rlm.messages import Usage

__all__ = ["Outline", "ended_card", "figures", "last_line", "problem_of", "words_of"]

KEPT_STEPS = 50
CELLS_PER_STEP = 5
CODE_CHARS = 4_000
WORDS_CHARS = 1_000
ERROR_CHARS = 300
PROBLEM_CHARS = 2_000
MOST_BARS = 4_000
"""The most bars of each kind; if there are more, bars that are very close are joined."""
COLUMNS = 1_000

_FENCED = re.compile(r"^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)


def words_of(reply: str, codes: Iterable[str] = (), limit: int = WORDS_CHARS) -> str:
    """Return the prose of a reply, without its blocks of code, cut to `limit`.

    `codes` are the cells that ran: a block may itself contain fences.
    """
    for code in codes:
        reply = reply.replace(code.strip("\n"), "", 1)
    words = re.sub(r"\n{3,}", "\n\n", _FENCED.sub("", reply)).strip()
    return words if len(words) <= limit else f"{words[: limit - 1].rstrip()}…"


def last_line(ended: CellEnded) -> str:
    """Return a line that says what went wrong in a cell; empty if it did not fail."""
    if ended.error_type is None:
        return "interrupted" if ended.interrupted else ""
    line = f"{ended.error_type}: {ended.error_message or ''}".rstrip(": ")
    return " ".join(line.split())[:ERROR_CHARS]


class _Cell(Struct):
    code: str
    ended: CellEnded | None = None

    def note(self) -> CellNote:
        cut = "\n…" if len(self.code) > CODE_CHARS else ""
        if self.ended is None:
            return CellNote(self.code[:CODE_CHARS] + cut, "running")
        calls = f", {counted(self.ended.calls, 'call')}" if self.ended.calls else ""
        took = f"{self.ended.seconds:.1f} s{calls}"
        return CellNote(self.code[:CODE_CHARS] + cut, took, last_line(self.ended))


class _Step(Struct):
    number: int
    reply: str = ""
    cells: list[_Cell] = []

    def note(self) -> StepNote:
        shown = [each.note() for each in self.cells[:CELLS_PER_STEP]]
        more = len(self.cells) - CELLS_PER_STEP
        shown += [CellNote(f"… {counted(more, 'more cell')}")] if more > 0 else []
        return StepNote(self.number, words_of(self.reply, [c.code for c in self.cells]), shown)


class Outline:
    """The steps of a root run and the time it took, in bounded memory. Feed it every event."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.query = ""
        self.steps_in_all = 0
        self._steps: deque[_Step] = deque(maxlen=KEPT_STEPS)
        self._bars: dict[str, list[Bar]] = {"model": [], "calls": [], "code": []}
        self._began: float | None = None
        for event in events:
            self.add(event)

    @property
    def steps(self) -> list[StepNote]:
        """The last steps, oldest first."""
        return [step.note() for step in self._steps]

    @property
    def bars(self) -> list[Bar]:
        return [bar for bars in self._bars.values() for bar in bars]

    def add(self, event: Event) -> None:
        """Include an event; those of child runs only add to the times."""
        self._began = event.wall_time if self._began is None else self._began
        if isinstance(event, ModelReplied):
            self._took("model", event, event.seconds)
        elif isinstance(event, CallEnded):
            self._took("calls", event, event.seconds)
        elif isinstance(event, CellEnded):
            self._took("code", event, event.seconds)
        if not event.depth:
            self._add_to_step(event)

    def _add_to_step(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.query, self.steps_in_all = event.query, 0
            self._steps.clear()
        elif isinstance(event, StepStarted):
            self.steps_in_all = max(self.steps_in_all, event.step)
            self._steps.append(_Step(event.step))
        elif not self._steps:
            return
        elif isinstance(event, ModelReplied) and event.purpose == "step":
            self._steps[-1].reply = event.text
        elif isinstance(event, CellStarted):
            self._steps[-1].cells.append(_Cell(event.code))
        elif isinstance(event, CellEnded) and self._steps[-1].cells:
            self._steps[-1].cells[-1].ended = event

    def _took(self, kind: str, event: Event, seconds: float) -> None:
        end = max(0.0, event.wall_time - (self._began or 0.0))
        bars = self._bars[kind]
        bars.append(Bar(kind, max(0.0, end - seconds), end))
        if len(bars) > MOST_BARS:
            self._bars[kind] = _joined(bars, end / COLUMNS)


def _joined(bars: list[Bar], gap: float) -> list[Bar]:
    """Return the bars, joining those that are closer than `gap`."""
    joined: list[Bar] = []
    for bar in sorted(bars, key=lambda each: each.start):
        if joined and bar.start - joined[-1].end <= gap:
            joined[-1] = joined[-1]._replace(end=max(bar.end, joined[-1].end))
        else:
            joined.append(bar)
    return joined


def figures(steps: int, usage: Usage, seconds: float) -> list[str]:
    """Return the figures of a run: steps, tokens, cost and time."""
    return [
        *([counted(steps, "step")] if steps else []),
        counted(usage.total_tokens, "token"),
        *([] if usage.cost_usd is None else [_money(usage.cost_usd)]),
        f"{seconds:.1f} s",
    ]


def _money(cost_usd: float) -> str:
    if not cost_usd:
        return "free"
    return f"${cost_usd:.4f}" if cost_usd >= 0.0001 else "under $0.0001"


def problem_of(ended: RunEnded | Any, answer: object) -> str:
    """Return why a run or its result has no answer, or an unreliable one."""
    if ended.stop_reason == "answer":
        return warning_of(ended.unsupported_quotes) if ended.unsupported_quotes else ""
    why = (ended.detail or ended.limit or ended.stop_reason).rstrip(".")
    if ended.stop_reason in {"error", "passages"} or answer is None:
        return why[:PROBLEM_CHARS]
    return f"Stopped early: {why[:PROBLEM_CHARS]}. This is a best guess."


def ended_card(
    outline: Outline,
    answer: str | None,
    facts: Sequence[str],
    *,
    problem: str = "",
    citations: Sequence[Citation] = (),
    command: str = "",
) -> Card:
    """Return the card of a run that has ended."""
    return Card(
        answer,
        facts,
        query=outline.query,
        problem=problem,
        quotes=[(each.label, " ".join(each.text.split())) for each in citations],
        bars=outline.bars,
        steps=outline.steps,
        steps_in_all=outline.steps_in_all,
        command=command,
    )
