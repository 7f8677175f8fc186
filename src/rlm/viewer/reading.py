"""What the runs of a tree got to see, as the coverage map counts it."""

from collections.abc import Iterator

from rlm.events import CallStarted, CellOutput, Event, ModelAsked
from rlm.images import shown
from rlm.viewer.coverage import Reader, Reading
from rlm.viewer.notes import CODES
from rlm.viewer.records import RecordFile

__all__ = ["readings"]

_CODES = frozenset({CODES["cell_output"], CODES["call_started"], CODES["model_asked"]})


def readings(file: RecordFile, run_ids: list[str]) -> Iterator[Reading]:
    """In the order in which it happened."""
    for _, _, event in file.tree_events(run_ids, codes=_CODES):
        yield from _of(event)


def _of(event: Event) -> Iterator[Reading]:
    if isinstance(event, CellOutput):
        yield Reading(Reader(event.run_id, event.step, "printed"), event.text)
    elif isinstance(event, CallStarted):
        yield Reading(Reader(event.run_id, event.step, "call", event.call_id), event.prompt)
    elif isinstance(event, ModelAsked) and event.message_count == len(event.new_messages):
        # Later requests hold what cells printed, which was counted when it was printed.
        for message in event.new_messages:
            if message.role == "user":
                yield Reading(Reader(event.run_id, event.step, "call"), shown(message.content))
