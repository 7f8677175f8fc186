"""Where events come from: our own logs, and journals. Each is read again every time."""

import errno
import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from rlm.errors import ConfigError
from rlm.events import Event
from rlm.records.trajectories.decoding import Glance, Line, Skipped, event_of, glance_at, lines_of

__all__ = ["JournalSource", "LogSource", "Source", "Span", "opened"]

QUIET_SECONDS = 600
"""A file untouched for this long belongs to a killed run."""

Span = tuple[int, int]
"""From one position of a source up to another: bytes of a file, or line numbers of a journal."""


class Source(Protocol):
    """One file. Its positions are numbers that only it can interpret."""

    path: Path

    def glances(
        self, start: int, skipped: Skipped, tail: Skipped
    ) -> Iterator[tuple[int, int, Glance | None]]:
        """Yield from a position on: where each line starts, where the next one does, its glance.

        `tail` counts a last line that may be incomplete; it will be read again.
        """

    def events(self, spans: Sequence[Span] | None, skipped: Skipped) -> Iterator[tuple[int, Event]]:
        """Yield all events, or those in some spans, with their positions."""

    def may_grow(self) -> bool:
        """Return whether the file may still grow."""


def opened(path: Path) -> BinaryIO:
    """Open a file for reading; raise ConfigError if that fails. A pipe would block forever."""
    try:
        return open(path, "rb", buffering=1 << 20, opener=_opened_without_waiting)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror or error}") from error


def _opened_without_waiting(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file; write its content to one")
    return descriptor


def changed_lately(path: Path) -> bool:
    """Return whether a file was written recently."""
    try:
        return time.time() - path.stat().st_mtime < QUIET_SECONDS
    except OSError:
        return False


class LogSource:
    """One of our logs. Its positions are byte offsets."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def glances(
        self, start: int, skipped: Skipped, tail: Skipped
    ) -> Iterator[tuple[int, int, Glance | None]]:
        with opened(self.path) as file:
            for line in lines_of(file, skipped, start=start):
                found = glance_at(line, tail if line.torn else skipped) if line.text else None
                if found is not None:
                    yield found[0].start, line.end, found[1]
                elif not line.torn:
                    yield line.start, line.end, None

    def events(self, spans: Sequence[Span] | None, skipped: Skipped) -> Iterator[tuple[int, Event]]:
        ignored = Skipped()  # Lines without a glance were counted when the index was built.
        with opened(self.path) as file:
            for start, stop in [(0, None)] if spans is None else spans:
                for line in lines_of(file, ignored, start=start, stop=stop):
                    found = glance_at(line, ignored) if line.text else None
                    event = None if found is None else event_of(found[0], skipped)
                    if found is not None and event is not None:
                        yield found[0].start, event

    def may_grow(self) -> bool:
        return changed_lately(self.path)


class JournalSource:
    """A journal. Its positions are the numbers of its event lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def glances(
        self, start: int, skipped: Skipped, tail: Skipped
    ) -> Iterator[tuple[int, int, Glance | None]]:
        for line in self._lines(start):
            found = glance_at(line, skipped)
            yield line.start, line.end, None if found is None else found[1]

    def events(self, spans: Sequence[Span] | None, skipped: Skipped) -> Iterator[tuple[int, Event]]:
        ignored = Skipped()
        for line in self._lines(0) if spans is None else self._within(spans):
            if (found := glance_at(line, ignored)) is not None:
                event = event_of(found[0], skipped)
                if event is not None:
                    yield line.start, event

    def may_grow(self) -> bool:
        return changed_lately(self.path) or changed_lately(Path(f"{self.path}-wal"))

    def _lines(self, start: int) -> Iterator[Line]:
        from rlm.records.journal import events_of

        try:
            for number, text in enumerate(events_of(self.path)):
                if number >= start:
                    yield Line(number, number + 1, text)
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"{self.path} can't be read as a journal: {error}") from error

    def _within(self, spans: Sequence[Span]) -> Iterator[Line]:
        """Yield the lines in sorted spans; a journal can only be read from the beginning."""
        if not spans:
            return
        ahead = iter(spans)
        start, stop = next(ahead)
        for line in self._lines(start):
            while line.start >= stop:
                if (following := next(ahead, None)) is None:
                    return
                start, stop = following
            if line.start >= start:
                yield line
