"""The timeline of a tree of runs: its steps, cells, operators and child runs, besides the calls."""

from collections.abc import Mapping
from typing import Any

from rlm.events import CellEnded, CellStarted, Event, OperatorEnded, OperatorStarted
from rlm.viewer.index import CODES
from rlm.viewer.outlines import Forest
from rlm.viewer.record_files import RecordFile
from rlm.viewer.rows import SHOWN_CHARS, CallRow

__all__ = ["run_spans", "step_spans", "work_spans"]

_WORK = frozenset(
    CODES[name] for name in ("cell_started", "cell_ended", "operator_started", "operator_ended")
)


def step_spans(file: RecordFile, run_ids: list[str], limit: int) -> list[CallRow]:
    """Return the first steps of all runs, from their index alone."""
    spans: list[CallRow] = []
    for run_id in run_ids:
        run = file.index_of(run_id)
        for step, row in sorted(run.steps.items()):
            if len(spans) >= limit:
                return spans
            if step == 0:  # What happens before the first step is not a step.
                continue
            spans.append(
                CallRow(
                    call_id=f"step {step}",
                    run_id=run_id,
                    depth=run.opening.depth,
                    step=step,
                    kind="step",
                    model=run.opening.model[:SHOWN_CHARS],
                    start=row.start,
                    end=row.end,
                    tokens=row.used.tokens,
                    cost_usd=row.used.cost,
                    error="a cell or the request failed" if row.error else None,
                    stored=row.stored,
                    prompt=f"step {step}",
                )
            )
    return spans


def run_spans(
    forest: Forest, run_ids: list[str], calls: Mapping[str, Any], limit: int
) -> list[CallRow]:
    """Return the first child runs that no call shows, such as the samples of one question."""
    spans: list[CallRow] = []
    for run_id in run_ids[1:]:
        outline = forest.nodes[run_id].outline
        if outline.parent_call_id in calls:
            continue
        if len(spans) >= limit:
            break
        is_over = outline.status != "running"
        spans.append(
            CallRow(
                call_id=run_id,
                run_id=run_id,
                depth=outline.depth,
                step=0,
                kind="run",
                model=outline.model[:SHOWN_CHARS],
                start=outline.started,
                end=outline.started + outline.seconds if is_over else None,
                tokens=outline.tokens,
                cost_usd=outline.cost_usd,
                error=None if outline.error is None else outline.error[: 10 * SHOWN_CHARS],
                child_run_id=run_id,
                prompt=outline.query[:SHOWN_CHARS],
                reply=(outline.answer or "")[:SHOWN_CHARS],
            )
        )
    return spans


def work_spans(file: RecordFile, run_ids: list[str], limit: int) -> list[CallRow]:
    """Return the first cells and operators."""
    found = _Work(limit)
    for _, number, event in file.tree_events(run_ids, codes=_WORK):
        if found.is_complete():
            break
        found.take(event, number)
    return sorted(found.spans, key=lambda span: span.start)


class _Work:
    """Pairs starts and ends; a step that runs again has other event numbers."""

    def __init__(self, limit: int) -> None:
        self.spans: list[CallRow] = []
        self._limit = limit
        self._open: dict[tuple[str, str, str], CallRow] = {}

    def is_complete(self) -> bool:
        return len(self.spans) >= self._limit and not self._open

    def take(self, event: Event, number: int) -> None:
        if isinstance(event, CellStarted):
            self._begin(event, "cell", str(event.cell), number, event.code)
        elif isinstance(event, OperatorStarted):
            self._begin(event, "operator", event.operator_id, number, f"{event.name}: {event.task}")
        elif isinstance(event, CellEnded):
            error = event.error_message or event.error_type
            self._end(event, "cell", str(event.cell), error, "")
        elif isinstance(event, OperatorEnded):
            self._end(event, "operator", event.operator_id, event.error, event.summary)

    def _begin(
        self,
        event: CellStarted | OperatorStarted,
        kind: str,
        name: str,
        number: int,
        text: str,
    ) -> None:
        if len(self.spans) >= self._limit:
            return
        span = CallRow(
            call_id=f"#{number}",
            run_id=event.run_id,
            depth=event.depth,
            step=event.step,
            kind=kind,
            model=f"cell {event.cell}" if isinstance(event, CellStarted) else "",
            start=event.wall_time,
            prompt=text[:SHOWN_CHARS],
        )
        self.spans.append(span)
        self._open[event.run_id, kind, f"{event.step} {name}"] = span

    def _end(
        self, event: CellEnded | OperatorEnded, kind: str, name: str, error: str | None, text: str
    ) -> None:
        span = self._open.pop((event.run_id, kind, f"{event.step} {name}"), None)
        if span is not None:
            span.end = event.wall_time
            span.error = None if error is None else error[: 10 * SHOWN_CHARS]
            span.reply = text[:SHOWN_CHARS]
