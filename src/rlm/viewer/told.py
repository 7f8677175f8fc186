"""What the server tells of runs, as plain values. It blocks, and is called from threads."""

import threading
from typing import Any

import msgspec
from msgspec.structs import replace

from rlm.errors import ConfigError
from rlm.events import ContextHashed, Event, RunStarted
from rlm.viewer.contexts import ContextDesk, ContextText
from rlm.viewer.coverage import covered
from rlm.viewer.library import Library, Unknown
from rlm.viewer.notes import CODES
from rlm.viewer.outlines import MOST_IN_TREE, Node
from rlm.viewer.reading import readings
from rlm.viewer.records import RecordFile
from rlm.viewer.rows import call_rows, request_rows, step_rows, usage_points
from rlm.viewer.search import search
from rlm.viewer.shaping import Cutter, text_in
from rlm.web.responses import without_paths

__all__ = ["Teller"]

LISTED_CHARS = 500
FIRST_ANSWER_SECONDS = 1.0
MOST_REASONS = 10


class Teller:
    """Answers every question of the page but those that change something."""

    def __init__(self, library: Library, contexts: ContextDesk) -> None:
        self._library = library
        self._contexts = contexts
        self._mapping = threading.Lock()
        self._mapped: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}

    def runs(self) -> dict[str, Any]:
        found = self._library.listing(FIRST_ANSWER_SECONDS)
        skipped = found.skipped
        told_first = [*skipped.notices, *skipped.first][:MOST_REASONS]
        reasons = [without_paths(each) for each in told_first]
        told: dict[str, Any] = {
            "runs": [node.plain(LISTED_CHARS) for node in found.runs],
            "skipped": {"count": skipped.total, "reasons": reasons},
        }
        return told if found.reading is None else {**told, "reading": found.reading}

    def run(self, run_id: str) -> dict[str, Any]:
        file = self._library.find(run_id)
        forest = file.forest()
        node = forest.nodes.get(run_id) or self._library.unstarted(file)
        if node is None:
            raise Unknown("this run has not begun yet")
        if run_id not in forest.nodes:
            return _unstarted(node)
        tree = forest.below(node.root, MOST_IN_TREE)
        started, ended = self._ends(file, run_id)
        notes, cutter = file.notes_of(run_id), Cutter()
        return {
            "run": node.plain(),
            "tree": [forest.nodes[each].plain(LISTED_CHARS) for each in tree],
            "steps": step_rows(notes, forest.used_by_children(notes)),
            "started": None if started is None else cutter.shaped(started, 0),
            "ended": None if ended is None else cutter.shaped(*ended),
            "context": self._context_facts(started),
        }

    def step(self, run_id: str, step: int, offset: int, limit: int) -> dict[str, Any]:
        file, _ = self._found(run_id)
        row = file.notes_of(run_id).steps.get(step)
        if row is None:
            raise Unknown(f"this run has no step {step}")
        total, cutter = len(row.events), Cutter()
        numbers = list(row.events[offset : offset + limit])
        events = [cutter.shaped(event, n) for n, event in file.events_at(run_id, numbers)]
        return {"events": events, "total": total}

    def text(self, run_id: str, number: int, field: str) -> dict[str, Any]:
        file, _ = self._found(run_id)
        if number >= len(file.notes_of(run_id).types):
            raise Unknown("this run has no such event")
        for _, event in file.events_at(run_id, [number]):
            return text_in(event, field)
        raise Unknown("this event can't be read any more")

    def calls(self, run_id: str, limit: int) -> dict[str, Any]:
        file, tree = self._found(run_id)
        rows, total = call_rows(file, tree, limit)
        requests = request_rows(file, tree, limit)
        return {
            "calls": [msgspec.structs.asdict(row) for row in rows],
            "total": total,
            "requests": [msgspec.structs.asdict(row) for row in requests],
            **_span(file.forest().nodes[run_id]),
        }

    def usage(self, run_id: str) -> dict[str, Any]:
        file, tree = self._found(run_id)
        outline = file.forest().nodes[run_id].outline
        return {
            "points": usage_points(file.notes_of(each) for each in tree),
            "tokens": outline.tokens,
            "cost_usd": outline.cost_usd,
            **_span(file.forest().nodes[run_id]),
        }

    def search(self, run_id: str, query: str, limit: int, stop: threading.Event) -> dict[str, Any]:
        file, tree = self._found(run_id)
        hits, more = search(file, tree, query, limit, stop)
        return {"hits": hits, "more": more}

    # -- the context -------------------------------------------------------------------------

    def context(self, run_id: str, start: int, end: int) -> dict[str, Any]:
        file, _ = self._found(run_id)
        return {"text": self._context(file, run_id).text[start:end]}

    def coverage(self, run_id: str) -> dict[str, Any]:
        """One map at a time is made; the last ones are kept until their runs go on."""
        file, tree = self._found(run_id)
        with self._mapping:
            version, known = file.version(), self._mapped.get(run_id)
            if known is not None and known[0] == version:
                return known[1]
            told = self._map(file, run_id, tree)
            while len(self._mapped) >= 4:
                self._mapped.pop(next(iter(self._mapped)))
            self._mapped[run_id] = version, told
            return told

    def _map(self, file: RecordFile, run_id: str, tree: list[str]) -> dict[str, Any]:
        try:
            context = self._context(file, run_id)
        except ConfigError as error:
            nothing: dict[str, Any] = {"chars": 0, "documents": [], "spans": [], "readers": []}
            why_not = {"available": False, "why_not": without_paths(str(error)), "exact": False}
            return {**nothing, **why_not, "unread_percent": 100.0}
        found = covered(context.text, context.ranges, readings(file, tree))
        return {
            "available": True,
            "why_not": None,
            "chars": len(context.text),
            "documents": context.named(),
            **found.plain(),
        }

    def _context(self, file: RecordFile, run_id: str) -> ContextText:
        """A run's own context; of a child whose is not kept, that of the root it was cut from."""
        started, _ = self._ends(file, run_id)
        root = file.forest().nodes[run_id].root
        if root != run_id and not self._contexts.has(started):
            started, _ = self._ends(file, root)
        return self._contexts.text(started)

    def _context_facts(self, started: RunStarted | None) -> dict[str, Any]:
        if started is None:
            return _no_context()
        return {
            "kind": started.context_kind,
            "bytes": started.context_bytes,
            "sha256": started.context_sha256,
            "description": started.context_description[:LISTED_CHARS],
            "available": self._contexts.has(started),
        }

    # -- finding -----------------------------------------------------------------------------

    def _found(self, run_id: str) -> tuple[RecordFile, list[str]]:
        file = self._library.find(run_id)
        forest = file.forest()
        if run_id not in forest.nodes:
            raise Unknown("this run has not begun yet")
        return file, forest.below(run_id)

    def _ends(
        self, file: RecordFile, run_id: str
    ) -> tuple[RunStarted | None, tuple[Event, int] | None]:
        """How a run started, and how it ended, with the number of that event."""
        types = file.notes_of(run_id).types
        numbers = [
            types.find(CODES["run_started"]),
            types.find(CODES["context_hashed"]),
            types.rfind(CODES["run_ended"]),
        ]
        started, ended = None, None
        for number, event in file.events_at(run_id, sorted(n for n in numbers if n >= 0)):
            if isinstance(event, RunStarted):
                started = event
            elif isinstance(event, ContextHashed):
                started = started and replace(started, context_sha256=event.context_sha256)
            else:
                ended = event, number
        return started, ended


def _unstarted(node: Node) -> dict[str, Any]:
    plain = node.plain()
    empty: dict[str, Any] = {"steps": [], "started": None, "ended": None}
    return {"run": plain, "tree": [plain], **empty, "context": _no_context()}


def _span(node: Node) -> dict[str, float]:
    """From when to when a run took, or has taken so far."""
    return {"start": node.outline.started, "end": node.outline.started + node.outline.seconds}


def _no_context() -> dict[str, Any]:
    return {"kind": "", "bytes": 0, "sha256": "", "description": "", "available": False}
