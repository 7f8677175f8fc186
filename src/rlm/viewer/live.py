"""Server-sent events: new events of a tree, and that the list of runs has changed.

Files are looked at only while somebody listens, a few times a second, by their size and time.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from rlm.errors import ConfigError
from rlm.events import RunEnded
from rlm.viewer.library import Library, Unknown
from rlm.viewer.outlines import Forest
from rlm.viewer.records import RecordFile
from rlm.viewer.shaping import Cutter
from rlm.viewer.work import Busy, Work
from rlm.web.events import HEARTBEAT, RETRY, EventStream, event
from rlm.web.responses import json_bytes

__all__ = ["Live", "Position"]

MOST_STREAMS = 40
LOOK_SECONDS = 0.4
LIST_SECONDS = 2.0
BEAT_SECONDS = 15.0
PORTION = 200
PORTION_BYTES = 2_000_000
FROM_THE_START = "-"
_POSITION = re.compile(r"([0-9]{1,19})\.([0-9]{1,6})")


class Position(msgspec.Struct, frozen=True, order=True):
    """After which event a stream goes on: its place, and its number among those at that place."""

    place: int = -1
    number: int = 0

    @classmethod
    def of(cls, text: str) -> "Position | None":
        """What a client says it has seen; None if it says nothing that could be."""
        if text == FROM_THE_START:
            return cls()
        found = _POSITION.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.place}.{self.number}"


class Live:
    """All streams of one server."""

    def __init__(self, library: Library, work: Work) -> None:
        self._library = library
        self._work = work
        self._streams = 0

    async def run(self, run_id: str, after: str, closing: asyncio.Event) -> EventStream:
        """Stream a tree from a position on; without one, from its newest event on."""
        file = await self._work.run(self._library.find, run_id)
        position = Position.of(after)
        if position is None:
            position = await self._work.run(_newest, file, run_id)
        return self._stream(self._events(file, run_id, position), closing)

    def runs(self, closing: asyncio.Event) -> EventStream:
        """Stream a message whenever the list of runs changes."""
        return self._stream(self._list_changes(), closing)

    def _stream(self, messages: AsyncGenerator[bytes, None], closing: asyncio.Event) -> EventStream:
        if self._streams >= MOST_STREAMS:
            raise Busy("too many pages are watching already; close some of them")
        self._streams += 1
        return EventStream(self._sent(messages), self._ended, closing)

    async def _ended(self) -> None:
        self._streams -= 1

    async def _sent(self, messages: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        yield RETRY
        async with aclosing(messages):
            try:
                async for message in messages:
                    yield message
            except ConfigError:
                return  # The file is gone; the page may ask again.

    # -- a tree ------------------------------------------------------------------------------

    async def _events(
        self, file: RecordFile, run_id: str, position: Position
    ) -> AsyncGenerator[bytes, None]:
        beat = time.monotonic()
        while True:
            version = file.version()
            messages, position, is_over = await self._work.run(_portion, file, run_id, position)
            for message in messages:
                yield message
            if is_over:
                yield event(b"{}", "end")
                return
            if messages:
                beat = time.monotonic()
                continue
            await self._work.run(file.wake)
            while file.version() == version:
                await asyncio.sleep(LOOK_SECONDS)
                await self._work.run(file.wake)
                if time.monotonic() - beat > BEAT_SECONDS:
                    beat = time.monotonic()
                    yield HEARTBEAT

    # -- the list ----------------------------------------------------------------------------

    async def _list_changes(self) -> AsyncGenerator[bytes, None]:
        known = await self._work.run(self._library.state)
        yield event(b"{}", "runs")  # what changed while nobody listened
        beat = time.monotonic()
        while True:
            await asyncio.sleep(LIST_SECONDS)
            state = await self._work.run(self._library.state)
            if state != known:
                known = state
                yield event(b"{}", "runs")
            elif time.monotonic() - beat > BEAT_SECONDS:
                beat = time.monotonic()
                yield HEARTBEAT


def _portion(
    file: RecordFile, run_id: str, position: Position
) -> tuple[list[bytes], Position, bool]:
    """What comes next: messages, the position behind them, and whether the tree has ended."""
    forest = file.forest()
    if run_id not in forest.nodes:
        return [], position, False
    root = forest.nodes[run_id].root
    cutter, size, messages = Cutter(), 0, list[bytes]()
    last_end = _ended_at(file, root)
    at = position
    events = file.tree_events(forest.below(root), after=position.place - 1)
    seen, place = -1, -1
    for each_place, number, each in events:
        seen, place = (seen + 1, place) if each_place == place else (0, each_place)
        if Position(place, seen) <= position:
            continue
        at = Position(place, seen)
        data = json_bytes(cutter.shaped(each, number))
        messages.append(event(data, "rlm", str(at)))
        size += len(data)
        if len(messages) >= PORTION or size > PORTION_BYTES:
            break
        if isinstance(each, RunEnded) and each.run_id == root and place >= last_end:
            return messages, at, True
    is_over = not messages and last_end >= 0 and position.place >= last_end
    return messages, at, is_over


def _ended_at(file: RecordFile, root: str) -> int:
    """Where the last attempt of a root run says that it ended; -1 if it goes on."""
    notes = file.notes_of(root)
    return notes.places[-1] if notes.ending is not None and notes.places else -1


def _newest(file: RecordFile, run_id: str) -> Position:
    """Just before the newest event: whoever comes now sees at least that one."""
    forest: Forest = file.forest()
    if run_id not in forest.nodes:
        return Position()
    places = [file.notes_of(each).places for each in forest.below(forest.nodes[run_id].root)]
    last = max((each[-1] for each in places if each), default=-1)
    if last < 0:
        raise Unknown("this run has told nothing yet")
    return Position(last - 1, 1 << 40)
