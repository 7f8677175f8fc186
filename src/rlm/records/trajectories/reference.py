"""Logs of the reference engine, read as if they were ours.

Such a file has a line `metadata`, then a line `iteration` a step; runs follow each other in it
without a mark, and child runs stand inside the calls that started them.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rlm.events import Event
from rlm.records.trajectories.conversion import SoFar, converted
from rlm.records.trajectories.decoding import Glance, glance_of
from rlm.records.trajectories.lines import Line, lines_of
from rlm.records.trajectories.skipped import Skipped
from rlm.records.trajectories.sources import Span, changed_lately, opened

__all__ = ["REFERENCE_TYPES", "ReferenceSource"]

REFERENCE_TYPES = (b"metadata", b"iteration")
MOST_ITERATIONS = 100_000


class ReferenceSource:
    """One file. Its places are bytes; what must be known to read a line alone is kept by place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metadata: dict[str, Any] = {}
        self._before: dict[int, SoFar] = {}
        self._now = SoFar(run_id=path.stem)
        self._runs = 1

    def glances(
        self, start: int, skipped: Skipped, tail: Skipped
    ) -> Iterator[tuple[int, int, Glance | None]]:
        with opened(self.path) as file:
            for line in lines_of(file, skipped, start=start):
                iteration = self._iteration(line, tail if line.torn else skipped)
                if iteration is None and line.torn:
                    return
                yield line.start, line.end, None
                if iteration is not None and self._remember(line, iteration, skipped):
                    events, self._now = converted(iteration, self._metadata, self._now)
                    for event in events:
                        yield line.start, line.end, glance_of(event)

    def events(self, spans: Sequence[Span] | None, skipped: Skipped) -> Iterator[tuple[int, Event]]:
        ignored = Skipped()
        with opened(self.path) as file:
            for start, stop in [(0, None)] if spans is None else spans:
                for line in lines_of(file, ignored, start=start, stop=stop):
                    before = self._before.get(line.start)
                    iteration = None if before is None else self._iteration(line, ignored)
                    if before is not None and iteration is not None:
                        for event in converted(iteration, self._metadata, before)[0]:
                            yield line.start, event

    def may_grow(self) -> bool:
        return changed_lately(self.path)

    def _iteration(self, line: Line, skipped: Skipped) -> dict[str, Any] | None:
        """The iteration on a line; metadata is remembered, and the rest is counted."""
        if not line.text:
            return None
        where = f"byte {line.start:,}"
        value, reason = _parsed(line.text)
        if not isinstance(value, dict):
            skipped.add("torn" if line.torn else "not an iteration", where, reason)
        elif value.get("type") == "metadata":
            self._metadata = value
        elif value.get("type") == "iteration":
            return value
        else:
            skipped.add("unknown type", where)
        return None

    def _remember(self, line: Line, iteration: dict[str, Any], skipped: Skipped) -> bool:
        """Keep what the runs were like before this line; an iteration 1 begins another run."""
        if len(self._before) >= MOST_ITERATIONS:
            skipped.add("of too many steps", f"byte {line.start:,}", f"{MOST_ITERATIONS:,}")
            return False
        if self._now.is_over_before(iteration):
            self._runs += 1
            self._now = SoFar(run_id=f"{self.path.stem}-run{self._runs}")
        self._before[line.start] = self._now
        return True


def _parsed(text: bytes) -> tuple[Any, str]:
    """The value on a line, or why there is none. Python writes NaN, which is not JSON."""
    try:
        return msgspec.json.decode(text), "not an object"
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(text), "not an object"
    except (ValueError, RecursionError) as error:
        return None, str(error)
