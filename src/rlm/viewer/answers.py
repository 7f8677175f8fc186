"""Answers to what the page asks about runs, as plain values.

Everything here blocks and is called from threads. Long texts in events are shortened: `cut` names
the fields and their real lengths. Texts deeper inside have names with dots, such as
`new_messages.0.content`.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from rlm.errors import ConfigError
from rlm.events import ContextHashed, Event, RunStarted
from rlm.records.trajectories import Skipped
from rlm.viewer.contexts import Contexts, ContextText
from rlm.viewer.coverage import covered, readings
from rlm.viewer.coverage_maps import CoverageMaps, Progress
from rlm.viewer.data_coverage import data_read_by, data_reads
from rlm.viewer.index import CODES, ID_CHARS
from rlm.viewer.library import Library, Unknown
from rlm.viewer.outlines import MAX_IN_TREE, Node
from rlm.viewer.record_files import RecordFile
from rlm.viewer.rows import call_rows, request_rows, step_rows, usage_points
from rlm.web.responses import without_paths

__all__ = ["Answers", "Shortener", "search", "text_in"]

MAX_CHARS = 20_000
MAX_ITEMS = 1_000
MAX_LEVELS = 20
MAX_TEXT_CHARS = 5_000_000
ANSWER_CHARS = 8_000_000
MINIMAL_CHARS = 200
"""The length of every further text once an answer is too long.

Once it is twice too long, it gets no further lists and dicts.
"""

VALUE_CHARS = 4
"""What a value adds to the size of an answer besides its text."""

KEY_CHARS = 200
FIELD_CHARS = 300
"""The longest name of a text that the page can ask for."""


class Shortener:
    """Shortens the texts of one answer, and keeps count of its size."""

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self._most_chars = max_chars
        self._chars = 0

    def shaped(self, event: Event, number: int) -> dict[str, Any]:
        cut: dict[str, int] = {}
        plain: dict[str, Any] = msgspec.to_builtins(event)
        shortened = {name: self._short(value, name, cut, 1) for name, value in plain.items()}
        shortened["index"] = number
        return {**shortened, "cut": cut} if cut else shortened

    def _short(self, value: Any, name: str, cut: dict[str, int], level: int) -> Any:
        self._chars += VALUE_CHARS
        if isinstance(value, str):
            most = self._most_chars if self._chars < ANSWER_CHARS else MINIMAL_CHARS
            if len(value) > most:
                self._note(cut, name, len(value))
                value = value[:most]
            self._chars += len(value)
            return value
        if not isinstance(value, list | dict):
            return value
        if level > MAX_LEVELS or self._chars > 2 * ANSWER_CHARS:
            return "…"
        if len(value) > MAX_ITEMS:
            self._note(cut, name, len(value))
        if isinstance(value, list):
            items = enumerate(value[:MAX_ITEMS])
            return [self._short(item, f"{name}.{at}", cut, level + 1) for at, item in items]
        return self._short_dict(value, name, cut, level)

    def _short_dict(
        self, value: dict[str, Any], name: str, cut: dict[str, int], level: int
    ) -> dict[str, Any]:
        shortened: dict[str, Any] = {}
        for key, item in islice(value.items(), MAX_ITEMS):
            short = key[:KEY_CHARS]
            self._chars += len(short)
            shortened[short] = self._short(item, f"{name}.{short}", cut, level + 1)
        return shortened

    def _note(self, cut: dict[str, int], name: str, length: int) -> None:
        if len(name) <= FIELD_CHARS:
            cut[name] = length
            self._chars += len(name)


def text_in(event: Event, field: str) -> dict[str, Any]:
    """Return the whole text of a field, or of one inside it; a very long text is cut."""
    value: Any = msgspec.to_builtins(event)
    for name in field.split(".", MAX_LEVELS):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name[:9]) < len(value):
            value = value[int(name[:9])]
        else:
            raise Unknown("this event has no such text")
    if not isinstance(value, str):
        raise Unknown("this field of the event is not text")
    if len(value) > MAX_TEXT_CHARS:
        return {"text": value[:MAX_TEXT_CHARS], "chars": len(value)}
    return {"text": value}


MAX_SECONDS = 10.0
AROUND_CHARS = 80
IDS = frozenset({"type", "run_id", "parent_id", "call_id", "parent_call_id", "digest"})
"""Fields that are ids, not text."""

_PLAIN = re.compile(r"[ !#-\[\]-~]+")
"""Characters that JSON does not escape."""


def search(
    file: RecordFile, run_ids: list[str], query: str, limit: int, stop: threading.Event
) -> tuple[list[dict[str, Any]], bool]:
    """Return the first events that contain the text, in any case, and whether there may be more."""
    wanted = query.lower()
    deadline = time.monotonic() + MAX_SECONDS
    hits: list[dict[str, Any]] = []
    first_look = _first_look(wanted, stop, deadline)
    for _, number, event in file.tree_events(run_ids, passes=first_look):
        if stop.is_set() or time.monotonic() > deadline:
            return hits, True
        found = next(_excerpts(event, wanted), None)
        if found is None:
            continue
        if len(hits) >= limit:
            return hits, True
        hits.append(
            {
                "run_id": event.run_id,
                "step": event.step,
                "index": number,
                "type": str(type(event).__struct_config__.tag),
                "field": found[0],
                "cell": getattr(event, "cell", None),
                "call_id": (getattr(event, "call_id", None) or "")[:ID_CHARS] or None,
                "excerpt": found[1],
            }
        )
    return hits, False


def _first_look(
    wanted: str, stop: threading.Event, deadline: float
) -> Callable[[bytes], bool] | None:
    """Return a check that rules out most lines before they are decoded."""
    sure = max(_PLAIN.findall(wanted), key=len, default="").encode()

    def passes(line: bytes) -> bool:
        # Once it has to stop, every line passes, so that the search loop notices.
        return sure in line.lower() or stop.is_set() or time.monotonic() > deadline

    return passes if sure else None


def _excerpts(event: Event, wanted: str) -> Iterator[tuple[str, str]]:
    """Yield the fields that contain the text, each with an excerpt."""
    for name, value in msgspec.to_builtins(event).items():
        for text in () if name in IDS else _texts(value):
            at = text.lower().find(wanted)
            if at >= 0:
                start = max(0, at - AROUND_CHARS)
                excerpt = text[start : at + len(wanted) + AROUND_CHARS]
                yield name, f"{'…' if start else ''}{excerpt}"


def _texts(value: Any) -> Iterator[str]:
    """Yield every string in a value, without recursion: the file decides how deep it is."""
    ahead: list[Any] = [value]
    while ahead:
        item = ahead.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            ahead += [*reversed(item.values())]
        elif isinstance(item, list | tuple):
            ahead += reversed(item)


LISTED_CHARS = 500
FIRST_ANSWER_SECONDS = 1.0
MAX_REASONS = 10


class Answers:
    """Answers every request of the page that does not change anything."""

    def __init__(self, library: Library, contexts: Contexts) -> None:
        self._library = library
        self._contexts = contexts
        self._maps = CoverageMaps()

    def close(self) -> None:
        """End work that takes long."""
        self._maps.close()

    def runs(self) -> dict[str, Any]:
        found = self._library.listing(FIRST_ANSWER_SECONDS)
        skipped = found.skipped
        notes = self._notes(skipped)
        first_reasons = [*skipped.notices, *skipped.first][:MAX_REASONS]
        reasons = [without_paths(each) for each in first_reasons]
        answer: dict[str, Any] = {
            "runs": [_noted(node.plain(LISTED_CHARS), notes) for node in found.runs],
            "skipped": {"count": skipped.total, "reasons": reasons},
        }
        return answer if found.reading is None else {**answer, "reading": found.reading}

    def _notes(self, skipped: Skipped) -> Mapping[str, str]:
        """Return the notes about runs; if they can't be read, say so and continue without them."""
        try:
            return self._library.notes()
        except ConfigError as error:
            skipped.notice(str(error))
            return {}

    def run(self, run_id: str) -> dict[str, Any]:
        file = self._library.find(run_id)
        forest = file.forest()
        node = forest.nodes.get(run_id) or self._library.unstarted(file)
        if node is None:
            raise Unknown("this run has not started yet")
        if run_id not in forest.nodes:
            return _unstarted(node)
        tree = forest.below(node.root, MAX_IN_TREE)
        started, ended = self._ends(file, run_id)
        index, shortener = file.index_of(run_id), Shortener()
        return {
            "run": _noted(node.plain(), self._notes(Skipped())),
            "tree": [forest.nodes[each].plain(LISTED_CHARS) for each in tree],
            "steps": step_rows(index, forest.used_by_children(index)),
            "started": None if started is None else shortener.shaped(started, 0),
            "ended": None if ended is None else shortener.shaped(*ended),
            "context": self._context_facts(started),
        }

    def step(self, run_id: str, step: int, offset: int, limit: int) -> dict[str, Any]:
        file, _ = self._found(run_id)
        row = file.index_of(run_id).steps.get(step)
        if row is None and file.may_run():  # A resumed run will come to the step again.
            return {"events": [], "total": 0}
        if row is None:
            raise Unknown(f"this run has no step {step}")
        total, shortener = len(row.events), Shortener()
        numbers = list(row.events[offset : offset + limit])
        events = [shortener.shaped(event, n) for n, event in file.events_at(run_id, numbers)]
        return {"events": events, "total": total}

    def text(self, run_id: str, number: int, field: str) -> dict[str, Any]:
        file, _ = self._found(run_id)
        if number >= len(file.index_of(run_id).types):
            raise Unknown("this run has no such event")
        for _, event in file.events_at(run_id, [number]):
            return text_in(event, field)
        raise Unknown("this event can no longer be read")

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
            "points": usage_points(file.index_of(each) for each in tree),
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

    def coverage(self, run_id: str, wait_seconds: float | None = None) -> dict[str, Any]:
        """Return the coverage map of a run; if it takes too long, how much of it is done."""
        file, tree = self._found(run_id)

        def make(progress: Progress) -> dict[str, Any]:
            return self._map(file, run_id, tree, progress)

        return self._maps.get(run_id, file.version(), make, wait_seconds)

    def _map(
        self, file: RecordFile, run_id: str, tree: list[str], progress: Progress
    ) -> dict[str, Any]:
        nothing: dict[str, Any] = {"chars": 0, "documents": [], "spans": [], "readers": []}
        started = self._started_over(file, run_id)
        if started is not None and started.context_kind == "source":
            found_data = data_read_by(data_reads(file, tree))
            about = {"description": started.context_description[:LISTED_CHARS], **found_data}
            facts = {"available": True, "why_not": None, "exact": found_data["exact"]}
            return {**nothing, **facts, "unread_percent": 0.0, "data": about}
        try:
            context = self._contexts.text(started)
        except ConfigError as error:
            why_not = {"available": False, "why_not": without_paths(str(error)), "exact": False}
            return {**nothing, **why_not, "unread_percent": 100.0}
        found = covered(context.text, context.ranges, readings(file, tree), progress)
        return {
            "available": True,
            "why_not": None,
            "chars": len(context.text),
            "documents": context.named(),
            **found.plain(),
        }

    def _context(self, file: RecordFile, run_id: str) -> ContextText:
        return self._contexts.text(self._started_over(file, run_id))

    def _started_over(self, file: RecordFile, run_id: str) -> RunStarted | None:
        """Return how the run started whose context counts.

        For a child whose context is not stored, that is its root.
        """
        started, _ = self._ends(file, run_id)
        root = file.forest().nodes[run_id].root
        is_data = started is not None and started.context_kind == "source"
        if root != run_id and not is_data and not self._contexts.has(started):
            started, _ = self._ends(file, root)
        return started

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

    def started(self, run_id: str) -> RunStarted | None:
        """Return how a run started; None if its record does not say."""
        file = self._library.find(run_id)
        return self._ends(file, run_id)[0] if run_id in file.forest().nodes else None

    def _found(self, run_id: str) -> tuple[RecordFile, list[str]]:
        file = self._library.find(run_id)
        forest = file.forest()
        if run_id not in forest.nodes:
            raise Unknown("this run has not started yet")
        return file, forest.below(run_id)

    def _ends(
        self, file: RecordFile, run_id: str
    ) -> tuple[RunStarted | None, tuple[Event, int] | None]:
        """Return how a run started and how it ended, with the number of that event."""
        types = file.index_of(run_id).types
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


def _noted(plain: dict[str, Any], notes: Mapping[str, str]) -> dict[str, Any]:
    note = notes.get(plain["run_id"])
    return plain if note is None else {**plain, "note": note[:LISTED_CHARS]}


def _unstarted(node: Node) -> dict[str, Any]:
    plain = node.plain()
    empty: dict[str, Any] = {"steps": [], "started": None, "ended": None}
    return {"run": plain, "tree": [plain], **empty, "context": _no_context()}


def _span(node: Node) -> dict[str, float]:
    """Return when a run started, and when it ended or was last active."""
    return {"start": node.outline.started, "end": node.outline.started + node.outline.seconds}


def _no_context() -> dict[str, Any]:
    return {"kind": "", "bytes": 0, "sha256": "", "description": "", "available": False}
