"""Server-sent events: new events of a tree of runs, and changes to the list of runs.

Files are checked only while a page listens, a few times a second, by size and time.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from rlm.errors import ConfigError
from rlm.events import RunEnded
from rlm.viewer.answers import Shortener
from rlm.viewer.library import Busy, Library, Threads, Unknown
from rlm.viewer.outlines import Forest
from rlm.viewer.record_files import RecordFile
from rlm.web.events import HEARTBEAT, RETRY, EventStream, event
from rlm.web.responses import json_bytes

__all__ = ["Live", "Position"]

MAX_STREAMS = 40
LOOK_SECONDS = 0.4
LIST_SECONDS = 2.0
BEAT_SECONDS = 15.0
PORTION = 200
PORTION_BYTES = 2_000_000
FROM_THE_START = "-"
_POSITION = re.compile(r"([0-9]{1,19})\.([0-9]{1,6})")


class Position(msgspec.Struct, frozen=True, order=True):
    """The event after which a stream continues: its place, and its number at that place."""

    place: int = -1
    number: int = 0

    @classmethod
    def of(cls, text: str) -> "Position | None":
        """Parse the position that a client has reached; None if it is not a position."""
        if text == FROM_THE_START:
            return cls()
        found = _POSITION.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.place}.{self.number}"


class Live:
    """All streams of one viewer."""

    def __init__(self, library: Library, threads: Threads) -> None:
        self._library = library
        self._threads = threads
        self._streams = 0

    async def run(self, run_id: str, after: str, closing: asyncio.Event) -> EventStream:
        """Stream a tree from a position on; without one, from its newest event on."""
        file = await self._threads.run(self._library.find, run_id)
        position = Position.of(after)
        if position is None:
            position = await self._threads.run(_newest, file, run_id)
        return self._stream(self._events(file, run_id, position), closing)

    def runs(self, closing: asyncio.Event) -> EventStream:
        """Stream a message whenever the list of runs changes."""
        return self._stream(self._list_changes(), closing)

    def _stream(self, messages: AsyncGenerator[bytes, None], closing: asyncio.Event) -> EventStream:
        if self._streams >= MAX_STREAMS:
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
            messages, position, is_over = await self._threads.run(_portion, file, run_id, position)
            for message in messages:
                yield message
            if is_over:
                yield event(b"{}", "end")
                return
            if messages:
                beat = time.monotonic()
                continue
            await self._threads.run(file.wake)
            while file.version() == version:
                await asyncio.sleep(LOOK_SECONDS)
                await self._threads.run(file.wake)
                if time.monotonic() - beat > BEAT_SECONDS:
                    beat = time.monotonic()
                    yield HEARTBEAT

    # -- the list ----------------------------------------------------------------------------

    async def _list_changes(self) -> AsyncGenerator[bytes, None]:
        known = await self._threads.run(self._library.state)
        yield event(b"{}", "runs")  # The list may have changed before this stream started.
        beat = time.monotonic()
        while True:
            await asyncio.sleep(LIST_SECONDS)
            state = await self._threads.run(self._library.state)
            if state != known:
                known = state
                yield event(b"{}", "runs")
            elif time.monotonic() - beat > BEAT_SECONDS:
                beat = time.monotonic()
                yield HEARTBEAT


def _portion(
    file: RecordFile, run_id: str, position: Position
) -> tuple[list[bytes], Position, bool]:
    """Return the next messages, the position after them, and whether the tree has ended."""
    forest = file.forest()
    if run_id not in forest.nodes:
        return [], position, False
    root = forest.nodes[run_id].root
    shortener, size, messages = Shortener(), 0, list[bytes]()
    last_end = _ended_at(file, root)
    at = position
    events = file.tree_events(forest.below(root), after=position.place - 1)
    seen, place = -1, -1
    for each_place, number, each in events:
        seen, place = (seen + 1, place) if each_place == place else (0, each_place)
        if Position(place, seen) <= position:
            continue
        at = Position(place, seen)
        data = json_bytes(shortener.shaped(each, number))
        messages.append(event(data, "rlm", str(at)))
        size += len(data)
        if len(messages) >= PORTION or size > PORTION_BYTES:
            break
        if isinstance(each, RunEnded) and each.run_id == root and place >= last_end:
            return messages, at, True
    is_over = not messages and last_end >= 0 and position.place >= last_end
    return messages, at, is_over


def _ended_at(file: RecordFile, root: str) -> int:
    """Return the place of the event that ended a root run; -1 if it is still running."""
    index = file.index_of(root)
    return index.places[-1] if index.ending is not None and index.places else -1


def _newest(file: RecordFile, run_id: str) -> Position:
    """Return the position just before the newest event, so that a new stream begins with it."""
    forest: Forest = file.forest()
    if run_id not in forest.nodes:
        return Position()
    places = [file.index_of(each).places for each in forest.below(forest.nodes[run_id].root)]
    last = max((each[-1] for each in places if each), default=-1)
    if last < 0:
        raise Unknown("this run has no events yet")
    return Position(last - 1, 1 << 40)
