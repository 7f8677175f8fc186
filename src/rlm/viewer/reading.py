"""What the runs of a tree got to see, as the coverage map counts it.

A text that was sent counts once there is a reply to it, also one from a cache or a journal. What
failed, was refused or cancelled, or has no reply yet may never have reached the model.
"""

from collections.abc import Iterator

from rlm.events import CallEnded, CallStarted, CellOutput, Event, ModelAsked, ModelReplied
from rlm.images import shown
from rlm.viewer.coverage import Reader, Reading
from rlm.viewer.notes import CODES
from rlm.viewer.records import RecordFile

__all__ = ["readings"]

_SEEN = frozenset({CODES["cell_output"], CODES["call_started"], CODES["model_asked"]})
_REPLIES = frozenset({CODES["call_ended"], CODES["model_replied"]})


def readings(file: RecordFile, run_ids: list[str]) -> Iterator[Reading]:
    """In the order in which it happened."""
    answered = _Answered(file, run_ids)
    for _, number, event in file.tree_events(run_ids, codes=_SEEN):
        if answered.includes(number, event):
            yield from _of(event)


class _Answered:
    """Which calls and requests got a reply."""

    def __init__(self, file: RecordFile, run_ids: list[str]) -> None:
        self._calls: set[tuple[str, str]] = set()
        self._last_replies: dict[str, int] = {}
        for _, number, event in file.tree_events(run_ids, codes=_REPLIES):
            if isinstance(event, CallEnded) and event.error is None:
                self._calls.add((event.run_id, event.call_id))
            elif isinstance(event, ModelReplied) and event.error is None:
                self._last_replies[event.run_id] = number

    def includes(self, number: int, event: Event) -> bool:
        if isinstance(event, CallStarted):
            return (event.run_id, event.call_id) in self._calls
        if isinstance(event, ModelAsked):
            # A request that failed is part of the next one, which may have been answered.
            return number < self._last_replies.get(event.run_id, -1)
        return True


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
