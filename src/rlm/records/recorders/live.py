"""Progress as a small live tree in a terminal: run, step, cell, calls, child runs.

It is redrawn in place and gone at the end; a line for each run that ended stays. All text that is
not ours goes through `harmless`, so the terminal obeys none of it.
"""

import threading
import time
from collections import deque
from typing import TextIO

from rlm.events import CellOutput, CellStarted, Diverged, Event, RunEnded, SessionLost
from rlm.records.recorders._progress import Progress
from rlm.records.recorders._screen import Screen
from rlm.records.recorders._tree import PLAIN, PRETTY, TURNS_PER_SECOND, Drawing, Line
from rlm.records.recorders.console import cell_details, divergence, loss, one_line, summary

__all__ = ["LiveRecorder"]

SAID = frozenset({CellOutput, CellStarted, Diverged, RunEnded, SessionLost})
"""Events that may add a line above the tree."""

SHOWN_NOTES = 3
WAITING_LINES = 10_000
"""So many lines wait for a terminal that is stopped (Ctrl-S); then the oldest are forgotten."""


class LiveRecorder:
    """Use it as a context manager around the runs; `verbose` prints what cells do above the tree.

    Recording only counts: a thread of its own draws, so a slow terminal holds up no run.
    """

    def __init__(self, stream: TextIO, *, verbose: bool = False) -> None:
        self._screen = Screen(stream)
        self._glyphs = PRETTY if self._screen.is_unicode else PLAIN
        self._verbose = verbose
        self._lock = threading.Lock()
        self._progress = Progress()
        self._above: deque[str] = deque(maxlen=WAITING_LINES)
        self._notes: deque[str] = deque(maxlen=SHOWN_NOTES)
        self._since = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "LiveRecorder":
        self._since = time.monotonic()
        self._stop.clear()
        self._thread = threading.Thread(target=self._redraw, name="rlm-progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the tree away; what is to stay is printed."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._screen.draw(self._printed(), [])

    def record(self, event: Event) -> None:
        with self._lock:
            if type(event) in SAID:
                self._above.extend(self._said(event))
            self._progress.add(event)

    def note(self, text: str) -> None:
        """A line below the tree, until the end."""
        self._notes.append(one_line(text))

    def lines(self, columns: int, rows: int) -> list[Line]:
        """The tree as it is now, in a terminal of that size."""
        with self._lock:
            drawing = Drawing(self._progress, time.monotonic(), columns - 1, self._glyphs)
            return drawing.lines(rows - 1, self._since, list(self._notes))

    def _said(self, event: Event) -> list[str]:
        """What an event adds above the tree, to stay there; the end of a child is only counted."""
        if isinstance(event, CellStarted | CellOutput):
            details = cell_details(event) if self._verbose else []
            return ["  " * event.depth + line for line in details]
        if isinstance(event, RunEnded):
            root = self._progress.roots.get(event.run_id)
            return [] if root is None else [one_line(summary(event, root.from_journal))]
        if isinstance(event, SessionLost):
            return [one_line(loss(event))]
        return [one_line(divergence(event))] if isinstance(event, Diverged) else []

    def _printed(self) -> list[str]:
        return [self._above.popleft() for _ in range(len(self._above))]

    def _redraw(self) -> None:
        while not self._stop.wait(1 / TURNS_PER_SECOND):
            self._screen.draw(self._printed(), self.lines(*self._screen.size()))
