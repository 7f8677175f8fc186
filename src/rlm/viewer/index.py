"""What one pass over a file leaves in memory: where each event is, and totals of the rest.

It takes about twenty bytes per event. Events are decoded only as far as the totals need it, so a
log of 200 MB opens in a second or two.
"""

from array import array
from math import nan
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from rlm._util.slow_numbers import decode_with
from rlm.records.trajectories.decoding import KNOWN_TYPES, Glance, Line, Skipped, glance_at

__all__ = ["CODES", "ID_CHARS", "FileIndex", "ModelUse", "RunIndex", "StepIndex", "Sum"]

MAX_EVENTS = 8_000_000
MAX_RUNS = 200_000
MAX_STEPS = 200_000
"""Limits per file, so that a hostile one can't fill the memory."""

MAX_MODELS = 50
"""How many models of a run are counted separately; the name of a model may be anything."""

OTHER_MODELS = "other models"
MODEL_CHARS = 200
ID_CHARS = 500
"""Runs with longer ids are skipped: no address could name them. Other names are cut."""

_TEXTS = ("query", "answer", "error")
_WORDS = ("answer_source", "call_id", "kind", "limit", "model", "parent_call_id", "stop_reason")
SHOWN_CHARS = 2_000
GROUP_KINDS = frozenset({"batch", "chat"})
GROUP_NAME_CHARS = 200
TYPES = ("run_started", "run_ended", *sorted(KNOWN_TYPES - {"run_started", "run_ended"}))
CODES = {name: code for code, name in enumerate(TYPES)}
_SPECIAL = CODES["run_ended"]
_REPLIED, _CALL, _DONE = CODES["model_replied"], CODES["call_started"], CODES["call_ended"]
_CELL, _RAN, _TOOL = CODES["cell_started"], CODES["cell_ended"], CODES["tool_called"]
_PAID = frozenset({_REPLIED, _DONE})

_literal: Any = Literal
_Type: Any = _literal[TYPES]
Count = Annotated[int, Meta(ge=0, le=1 << 40)]


class _Used(Struct, gc=False):
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: float | None = None
    requests: Count = 0


class _Look(Struct, gc=False):
    """The fields of an event that the index needs."""

    type: _Type
    run_id: str
    step: Count = 0
    wall_time: float = 0.0
    usage: _Used | None = None
    error: str | None = None
    error_type: str | None = None
    stored: bool = False
    kind: str = ""
    call_id: str = ""
    model: str = ""


_LOOK = msgspec.json.Decoder(_Look)


class Sum:
    """A total of tokens and cost; the cost is unknown if that of any part is."""

    __slots__ = ("cost_usd", "priced", "tokens", "unpriced")

    def __init__(self) -> None:
        self.tokens = 0
        self.cost_usd = 0.0
        self.priced = False
        self.unpriced = False

    def add(self, tokens: int, cost_usd: float | None, requests: int) -> None:
        self.tokens += tokens
        if cost_usd is not None:
            self.cost_usd += cost_usd
            self.priced = True
        elif requests:
            self.unpriced = True

    def include(self, other: "Sum") -> None:
        self.tokens += other.tokens
        self.cost_usd += other.cost_usd
        self.priced = self.priced or other.priced
        self.unpriced = self.unpriced or other.unpriced

    @property
    def cost(self) -> float | None:
        known = self.priced and not self.unpriced and abs(self.cost_usd) < float("inf")
        return round(self.cost_usd, 12) if known else None


class ModelUse:
    """What one run used of one model."""

    __slots__ = ("input_tokens", "output_tokens", "requests", "used")

    def __init__(self) -> None:
        self.requests = self.input_tokens = self.output_tokens = 0
        self.used = Sum()

    def include(self, other: "ModelUse") -> None:
        self.requests += other.requests
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.used.include(other.used)


class StepIndex:
    """One step of one run."""

    __slots__ = (
        *("by_children", "calls", "cells", "end", "error", "events", "failed_calls"),
        *("start", "stored", "tools", "used"),
    )

    def __init__(self, start: float) -> None:
        self.events = array("I")
        """The numbers of its events within the run."""
        self.start = self.end = start
        self.cells = self.calls = self.failed_calls = self.tools = 0
        self.error = self.stored = False
        self.used = Sum()
        self.by_children = Sum()
        """What calls report about their child runs; only in logs of the reference engine."""


class RunIndex:
    """One run, from its last attempt."""

    def __init__(self, opening: Glance, first: int, attempts: int) -> None:
        self.opening = opening
        self.ending: Glance | None = None
        self.first = first
        self.attempts = attempts
        self.latest = opening.wall_time
        self.places = array("Q")
        self.types = bytearray()
        self.steps: dict[int, StepIndex] = {}
        self.paid = array("I")
        """The events that report usage; for each of them its time, tokens and cost."""
        self.times = array("d")
        self.tokens = array("Q")
        self.costs = array("d")
        self.used = Sum()
        self.models: dict[str, ModelUse] = {}
        self.group: tuple[str, str] | None = None
        self.child_calls: dict[str, int] = {}
        """The step of every call that started a child run, unless the call reports its usage."""

    @property
    def calls(self) -> int:
        return self.types.count(_CALL)

    def add(self, place: int, code: int, look: _Look, row: StepIndex) -> None:
        row.events.append(len(self.types))
        self.places.append(place)
        self.types.append(code)
        time = look.wall_time
        if time > row.end:
            row.end = time
        if code == _CALL:
            row.calls += 1
            if look.kind == "rlm":
                self.child_calls[look.call_id[:ID_CHARS]] = look.step
        elif code == _CELL:
            row.cells += 1
        elif code == _TOOL:
            row.tools += 1
        elif code == _DONE and look.error is not None:
            row.failed_calls += 1
        elif code == _RAN and look.error_type is not None:
            row.error = True
        elif code == _REPLIED:
            row.stored = row.stored or look.stored
            row.error = row.error or look.error is not None
        if look.usage is not None and code in _PAID:
            self._pay(look, look.usage, row, is_child=code == _DONE and look.kind == "rlm")

    def _pay(self, look: _Look, usage: _Used, row: StepIndex, *, is_child: bool) -> None:
        tokens = usage.input_tokens + usage.output_tokens
        if is_child:
            self.child_calls.pop(look.call_id[:ID_CHARS], None)
        used = row.by_children if is_child else row.used
        used.add(tokens, usage.cost_usd, usage.requests)
        self.used.add(tokens, usage.cost_usd, usage.requests)
        model = self._model(look.model)
        model.used.add(tokens, usage.cost_usd, usage.requests)
        model.requests += usage.requests
        model.input_tokens += usage.input_tokens
        model.output_tokens += usage.output_tokens
        self.paid.append(len(self.types) - 1)
        self.times.append(look.wall_time)
        self.tokens.append(tokens)
        unknown = nan if usage.requests else 0.0
        self.costs.append(unknown if usage.cost_usd is None else usage.cost_usd)

    def _model(self, name: str) -> ModelUse:
        name = name[:MODEL_CHARS]
        if name not in self.models and len(self.models) >= MAX_MODELS:
            name = OTHER_MODELS
        return self.models.setdefault(name, ModelUse())


class FileIndex:
    """The index of one file. It grows line by line; reading continues at `end`."""

    def __init__(self) -> None:
        self.runs: dict[str, RunIndex] = {}
        self.skipped = Skipped()
        self.end = 0
        self.events = 0
        self.dropped = 0
        self._steps = 0

    def take(self, place: int, end: int, text: bytes, torn: bool) -> None:
        """Index one line. A torn line that is not an event yet will be read again."""
        try:
            look = decode_with(_LOOK, text)
        except (ValueError, RecursionError):
            found = self._behind_a_torn_one(place, end, text, torn)
            if found is None:
                return
            place, text, look = found
        self.end = end
        code = CODES[look.type]
        run = self.runs.get(look.run_id)
        if run is None or code <= _SPECIAL:
            run = self._begun_or_ended(place, end, text, run)
            if run is None:
                return
        row = run.steps.get(look.step)
        if row is None or self.events >= MAX_EVENTS:
            row = self._new_step(run, look)
            if row is None:
                return
        self.events += 1
        if look.wall_time > run.latest:
            run.latest = look.wall_time
        run.add(place, code, look, row)

    def _behind_a_torn_one(
        self, place: int, end: int, text: bytes, torn: bool
    ) -> tuple[int, bytes, _Look] | None:
        """Find an event after the half line of a killed writer; count what is not one."""
        if text.isspace():
            self.end = end
            return None
        line = Line(place, end, text, torn)
        found = glance_at(line, Skipped() if torn else self.skipped)
        if not torn:
            self.end = end
        try:
            return None if found is None else (found[0].start, found[0].text, _look(found[0].text))
        except (ValueError, RecursionError):
            return None

    def _begun_or_ended(
        self, place: int, end: int, text: bytes, run: RunIndex | None
    ) -> RunIndex | None:
        """Decode more of a run's first line, and of the events that start or end it."""
        found = glance_at(Line(place, end, text), self.skipped)
        if found is None:
            return run
        glance = found[1]
        if not glance.run_id:
            self.skipped.add("no id", f"byte {place:,}")
            return None
        if len(glance.run_id) > ID_CHARS:
            self.skipped.add("id too long", f"byte {place:,}", f"{len(glance.run_id):,} characters")
            return None
        if run is not None and glance.type == "run_ended":
            run.ending = _short(glance)
            return run
        if run is None and len(self.runs) >= MAX_RUNS:
            self._drop("runs")
            return None
        if run is not None:  # It starts again, and its previous attempt does not count.
            self.events -= len(run.types)
            self._steps -= len(run.steps)
        attempts = 1 if run is None else run.attempts + 1
        run = self.runs[glance.run_id] = RunIndex(_short(glance), place, attempts)
        run.group = _group_in(found[0].text)
        if glance.type == "run_ended":
            run.ending = run.opening
        return run

    def _new_step(self, run: RunIndex, look: _Look) -> StepIndex | None:
        if self._steps >= MAX_STEPS or self.events >= MAX_EVENTS:
            self._drop("steps" if self._steps >= MAX_STEPS else "events")
            return None
        self._steps += 1
        row = run.steps[look.step] = StepIndex(look.wall_time)
        return row

    def _drop(self, what: str) -> None:
        self.dropped += 1
        self.skipped.notice(f"this file has more {what} than the viewer can show at once")


class _Group(Struct):
    kind: str = ""
    name: str = ""


class _Settings(Struct):
    group: _Group | None = None


class _Started(Struct):
    settings: _Settings | None = None


_STARTED = msgspec.json.Decoder(_Started)


def _group_in(line: bytes) -> tuple[str, str] | None:
    """Return the kind and name of a run's group; None if the line states no valid one."""
    if b'"group"' not in line:
        return None
    try:
        settings = _STARTED.decode(line).settings
    except (ValueError, RecursionError):
        return None
    group = None if settings is None else settings.group
    if group is None or group.kind not in GROUP_KINDS or not group.name:
        return None
    return group.kind, group.name[:GROUP_NAME_CHARS]


def _look(text: bytes) -> _Look:
    return decode_with(_LOOK, text)


def _short(glance: Glance) -> Glance:
    """Cut long texts: the index lives as long as the server, and lists show all of them."""
    given = {name: getattr(glance, name) for name in (*_TEXTS, *_WORDS)}
    return msgspec.structs.replace(
        glance,
        **{
            name: value[: SHOWN_CHARS if name in _TEXTS else ID_CHARS]
            for name, value in given.items()
            if value is not None
        },
    )
