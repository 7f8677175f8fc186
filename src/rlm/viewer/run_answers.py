"""Answers about one run that read more than its events: its timeline, usage, context and results.

Everything here blocks and is called from threads.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from rlm.errors import ConfigError
from rlm.events import CellStarted, RunEnded
from rlm.viewer.answers import Answers
from rlm.viewer.context_lines import ContextLines
from rlm.viewer.contexts import Contexts, ContextText
from rlm.viewer.index import CODES, ModelUse, RunIndex
from rlm.viewer.library import Library, Unknown
from rlm.viewer.rows import step_rows
from rlm.viewer.timeline import run_spans, step_spans, work_spans

__all__ = ["RunAnswers"]

MAX_CELLS = 1_000
MAX_CODE_CHARS = 1_000_000
MAX_ROWS = 100
"""Of a table of usage, by model or by depth. Its rows add up to the whole."""
OTHERS = "others"
K = TypeVar("K", str, int)


class RunAnswers(Answers):
    """All answers of one library."""

    def __init__(self, library: Library, contexts: Contexts) -> None:
        super().__init__(library, contexts)
        self._lining = threading.Lock()
        self._lines: ContextLines | None = None

    def timeline(self, run_id: str, limit: int) -> dict[str, Any]:
        """Return the calls and requests of a tree, with its steps, cells and operators."""
        if not self._has_started(run_id):
            nothing: dict[str, Any] = {"calls": [], "requests": [], "spans": []}
            return {**nothing, "total": 0, "start": 0.0, "end": 0.0}
        answer = self.calls(run_id, limit)
        file, tree = self._found(run_id)
        calls = {row["call_id"]: row for row in answer["calls"] if row["kind"] == "rlm"}
        spans = [
            *step_spans(file, tree, limit),
            *work_spans(file, tree, limit),
            *run_spans(file.forest(), tree, calls, limit),
        ]
        return {**answer, "spans": [msgspec.structs.asdict(row) for row in spans]}

    def code(self, run_id: str, step: int) -> dict[str, Any]:
        """Return the code of all cells of a step; only the beginning if there is very much."""
        file, _ = self._found(run_id)
        index = file.index_of(run_id)
        if step not in index.steps:
            raise Unknown(f"this run has no step {step}")
        wanted = [n for n in index.steps[step].events if index.types[n] == CODES["cell_started"]]
        cells = (
            event.code
            for _, event in file.events_at(run_id, wanted[:MAX_CELLS])
            if isinstance(event, CellStarted)
        )
        code = "\n\n".join(cells)
        return {"code": code[:MAX_CODE_CHARS], "chars": len(code)}

    def usage(self, run_id: str) -> dict[str, Any]:
        """Return usage over time, and by model, depth and step."""
        if not self._has_started(run_id):
            tables: dict[str, Any] = {"models": [], "depths": [], "steps": [], "points": []}
            return {**tables, "tokens": 0, "cost_usd": None, "start": 0.0, "end": 0.0}
        file, tree = self._found(run_id)
        runs = [file.index_of(each) for each in tree]
        index = file.index_of(run_id)
        return {
            **super().usage(run_id),
            "models": _by_model(runs),
            "depths": _by_depth(runs),
            "steps": step_rows(index, file.forest().used_by_children(index)),
        }

    def _has_started(self, run_id: str) -> bool:
        """Return whether a run has events; a run that was just made has none yet."""
        return run_id in self._library.find(run_id).forest().nodes

    # -- the context -------------------------------------------------------------------------

    def context_page(self, run_id: str, at: int, above: int) -> dict[str, Any]:
        """Return rows of the context around a character."""
        lines = self._lines_of(run_id)
        return {**lines.page(at, above), "names": _names(lines.context)}

    def context_line(self, run_id: str, document: int, line: int, above: int) -> dict[str, Any]:
        """Return rows of the context around a line of a document."""
        lines = self._lines_of(run_id)
        at = lines.line(document, line)
        return {**lines.page(at, above), "names": _names(lines.context), "at": at}

    def context_find(
        self, run_id: str, words: str, start: int, limit: int, stop: threading.Event
    ) -> dict[str, Any]:
        return self._lines_of(run_id).find(words, start, limit, stop)

    def citation(self, run_id: str, number: int) -> dict[str, Any]:
        """Return the place of a citation of a run, counted from 0."""
        file, _ = self._found(run_id)
        _, ended = self._ends(file, run_id)
        citations = ended[0].citations if ended and isinstance(ended[0], RunEnded) else ()
        if number >= len(citations):
            raise Unknown("this run has no such citation")
        start, end = self._lines_of(run_id).cited(citations[number])
        return {"start": start, "end": end}

    def _lines_of(self, run_id: str) -> ContextLines:
        """Return the lines of a run's context; those of the last context are cached."""
        file, _ = self._found(run_id)
        with self._lining:
            try:
                context = self._context(file, run_id)
            except ConfigError as error:
                raise Unknown(str(error)) from error
            if self._lines is None or self._lines.context is not context:
                self._lines = ContextLines(context)
            return self._lines


def _names(context: ContextText) -> list[str]:
    """Return the names of the first documents, for a list to choose from."""
    return [name[:200] for name, _, _ in context.documents[:1_000]]


def _by_model(runs: Iterable[RunIndex]) -> list[dict[str, Any]]:
    """Return a row for each model, the most used first; those beyond a limit share one row."""
    rows = _grouped(runs, lambda model, _: model)
    ordered = sorted(rows.items(), key=lambda each: -each[1].used.tokens)
    listed = [_row("model", name, use) for name, use in ordered[:MAX_ROWS]]
    return [*listed, *_others("model", [use for _, use in ordered[MAX_ROWS:]])]


def _by_depth(runs: list[RunIndex]) -> list[dict[str, Any]]:
    """Return a row for each depth, with the number of its runs."""
    rows = _grouped(runs, lambda _, depth: depth)
    counts = Counter(run.opening.depth for run in runs)
    return [
        {**_row("depth", depth, rows.get(depth, ModelUse())), "runs": counts[depth]}
        for depth in sorted(counts)[:MAX_ROWS]
    ]


def _grouped(runs: Iterable[RunIndex], key: Callable[[str, int], K]) -> dict[K, ModelUse]:
    rows: dict[K, ModelUse] = {}
    for run in runs:
        for model, use in list(run.models.items()):
            rows.setdefault(key(model, run.opening.depth), ModelUse()).include(use)
    return rows


def _others(name: str, uses: list[ModelUse]) -> list[dict[str, Any]]:
    whole = ModelUse()
    for use in uses:
        whole.include(use)
    return [_row(name, OTHERS, whole)] if uses else []


def _row(name: str, value: str | int, use: ModelUse) -> dict[str, Any]:
    return {
        name: value,
        "requests": use.requests,
        "input_tokens": use.input_tokens,
        "output_tokens": use.output_tokens,
        "tokens": use.used.tokens,
        "cost_usd": use.used.cost,
    }
