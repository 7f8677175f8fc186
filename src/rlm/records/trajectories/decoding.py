"""Decode the lines of a log, and remember what was skipped."""

from collections.abc import Iterator
from typing import Annotated, BinaryIO, NamedTuple, get_args

import msgspec
from msgspec import Meta, Struct

from rlm._util.slow_numbers import decode_with
from rlm.events import SCHEMA_VERSION, Event
from rlm.messages import Usage
from rlm.records.recorders.console import one_line

__all__ = [
    "MAX_LINE_BYTES",
    "Glance",
    "Line",
    "Skipped",
    "event_of",
    "glance_at",
    "glance_of",
    "lines_of",
]

MAX_EXAMPLES = 5
EXAMPLE_CHARS = 200


class Skipped:
    """The number of skipped lines by reason, the first few of them, and notices."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.first: list[str] = []
        self.notices: list[str] = []

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, reason: str, where: str, detail: str = "") -> None:
        """Count one line; `where` and `detail` are kept only for the first few."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        if len(self.first) < MAX_EXAMPLES:
            example = f"{where}: {reason}" + (f" ({detail})" if detail else "")
            self.first.append(one_line(example, EXAMPLE_CHARS))

    def notice(self, text: str) -> None:
        """Add a notice about the whole file, once."""
        text = one_line(text)
        if text not in self.notices and len(self.notices) < MAX_EXAMPLES:
            self.notices.append(text)

    def include(self, other: "Skipped") -> None:
        """Add another's counts and examples."""
        for reason, count in other.counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
        self.first += other.first[: MAX_EXAMPLES - len(self.first)]
        for text in other.notices:
            self.notice(text)

    def __str__(self) -> str:
        """Return one line for people; empty if there is nothing to say."""
        parts = [f"{count:,} {reason}" for reason, count in sorted(self.counts.items())]
        lines = "line was" if self.total == 1 else "lines were"
        summary = [f"{self.total:,} {lines} skipped: {', '.join(parts)}"] if parts else []
        return "; ".join([*summary, *self.notices])


MAX_LINE_BYTES = 64 << 20
"""Longer lines are skipped. Our longest ones hold the stored output of a cell."""

_CHUNK_BYTES = 1 << 20


class Line(NamedTuple):
    """Where a line starts, where the next one starts, and its text; `torn`: it has no line end."""

    start: int
    end: int
    text: bytes
    torn: bool = False


def lines_of(
    file: BinaryIO,
    skipped: Skipped,
    *,
    start: int = 0,
    stop: int | None = None,
    max_bytes: int = MAX_LINE_BYTES,
) -> Iterator[Line]:
    """Yield the lines that start in a range, without empty ones.

    A line that is too long is counted, and yielded without its text.
    """
    at = file.seek(start)
    while stop is None or at < stop:
        text = file.readline(max_bytes + 1)
        if not text:
            return
        ended = text.endswith(b"\n")
        if not ended and len(text) > max_bytes:
            end = at + len(text) + _pass_over(file)
            skipped.add("too long", f"byte {at:,}", f"{end - at:,} bytes")
            yield Line(at, end, b"")
            at = end
            continue
        end = at + len(text)
        if not text.isspace():
            yield Line(at, end, text, torn=not ended)
        at = end


def _pass_over(file: BinaryIO) -> int:
    """Read to the end of the line without keeping it, and return the bytes read."""
    passed = 0
    while chunk := file.readline(_CHUNK_BYTES):
        passed += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return passed


Count = Annotated[int, Meta(ge=0, le=1 << 40)]

KNOWN_TYPES = frozenset(event.__struct_config__.tag for event in get_args(Event))
_START = b'{"type":"'
_MAX_TRIES = 8


class Glance(Struct, frozen=True, kw_only=True):
    """The fields of an event that an index needs; decoding only these is twice as fast."""

    type: str
    run_id: str
    parent_id: str | None = None
    depth: Count = 0
    step: Count = 0
    wall_time: float = 0.0
    schema_version: Count = SCHEMA_VERSION
    query: str = ""
    model: str = ""
    parent_call_id: str | None = None
    call_id: str | None = None
    kind: str = ""
    usage: Usage | None = None
    stop_reason: str = ""
    answer_source: str = ""
    limit: str | None = None
    error: str | None = None
    answer: str | None = None
    steps: Count = 0
    seconds: float = 0.0


_GLANCE = msgspec.json.Decoder(Glance)
_EVENT = msgspec.json.Decoder(Event)


def glance_at(line: Line, skipped: Skipped) -> tuple[Line, Glance] | None:
    """Return a line and its glance; count it and return None if it is not one of our events.

    The returned line starts later if a killed writer's torn line preceded it.
    """
    found = _whole_or_rest(line)
    if isinstance(found, str):
        skipped.add("torn" if line.torn else "not an event", f"byte {line.start:,}", found)
        return None
    glance = found[1]
    if glance.type not in KNOWN_TYPES:
        skipped.add("unknown type", f"byte {line.start:,}", glance.type)
        return None
    if glance.schema_version > SCHEMA_VERSION:
        skipped.notice(
            f"written with schema_version {glance.schema_version}, but this rlm knows only "
            f"{SCHEMA_VERSION}: some of it may be missing or mean something else; update rlm"
        )
    return found


def _whole_or_rest(line: Line) -> tuple[Line, Glance] | str:
    """Return the glance of a line, or of an event after a torn one; else why there is none."""
    reason, at = "", 0
    for _ in range(_MAX_TRIES):
        rest = line if at == 0 else line._replace(start=line.start + at, text=line.text[at:])
        try:
            return rest, decode_with(_GLANCE, rest.text)
        except (ValueError, RecursionError) as error:
            reason = reason or str(error)
        if (at := line.text.find(_START, at + 1)) < 0:
            break
    return reason


def event_of(line: Line, skipped: Skipped) -> Event | None:
    """Return the whole event; count it and return None if a field has the wrong type."""
    try:
        event: Event = decode_with(_EVENT, line.text)
    except (ValueError, RecursionError) as error:
        skipped.add("not an event", f"byte {line.start:,}", str(error))
        return None
    return event


def glance_of(event: Event) -> Glance:
    """Return the glance of an event."""
    names = Glance.__struct_fields__[1:]
    known = {name: getattr(event, name) for name in names if hasattr(event, name)}
    return Glance(type=str(type(event).__struct_config__.tag), **known)
