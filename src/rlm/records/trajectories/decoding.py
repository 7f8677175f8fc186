"""One line to one event, in two grades: a glance at what an index needs, or all of it.

Readers are tolerant on purpose: fields they do not know are ignored, types they do not know are
counted and passed over, so that logs of newer versions can be read as far as they go.
"""

from typing import Annotated, get_args

import msgspec
from msgspec import Meta, Struct

from rlm.events import SCHEMA_VERSION, Event
from rlm.messages import Usage
from rlm.records.trajectories.lines import Line
from rlm.records.trajectories.skipped import Skipped

__all__ = ["Glance", "event_of", "glance_at", "glance_of"]

Count = Annotated[int, Meta(ge=0, le=1 << 40)]

KNOWN_TYPES = frozenset(event.__struct_config__.tag for event in get_args(Event))
_START = b'{"type":"'
_MOST_TRIES = 8


class Glance(Struct, frozen=True, kw_only=True):
    """What an index wants to know of an event. Reading only this is more than twice as fast."""

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
    """What a line says at a glance; None if it is none of our events, and then it is counted.

    The line that comes back starts later if half a line of a killed writer stood before it.
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
            f"written with schema_version {glance.schema_version}, and this rlm knows "
            f"{SCHEMA_VERSION}: some of it may be missing or mean something else; update rlm"
        )
    return found


def _whole_or_rest(line: Line) -> tuple[Line, Glance] | str:
    """The line's glance, or that of an event in it behind a torn one; else why there is none."""
    reason, at = "", 0
    for _ in range(_MOST_TRIES):
        rest = line if at == 0 else line._replace(start=line.start + at, text=line.text[at:])
        try:
            return rest, _GLANCE.decode(rest.text)
        except (ValueError, RecursionError) as error:
            reason = reason or str(error)
        if (at := line.text.find(_START, at + 1)) < 0:
            break
    return reason


def event_of(line: Line, skipped: Skipped) -> Event | None:
    """The whole event; None, and counted, if a field has the wrong type."""
    try:
        event: Event = _EVENT.decode(line.text)
    except (ValueError, RecursionError) as error:
        skipped.add("not an event", f"byte {line.start:,}", str(error))
        return None
    return event


def glance_of(event: Event) -> Glance:
    """The same of an event that was made, not read."""
    names = Glance.__struct_fields__[1:]
    told = {name: getattr(event, name) for name in names if hasattr(event, name)}
    return Glance(type=str(type(event).__struct_config__.tag), **told)
