"""Show progress as a small live tree in a terminal: runs, steps, cells, calls, child runs.

The tree is redrawn in place and disappears at the end; one line per finished run stays. All text
from models and files goes through `harmless`, so the terminal obeys none of it.
"""

import os
import threading
import time
from collections import deque
from itertools import islice
from typing import NamedTuple, TextIO

from rich.cells import cell_len, set_cell_size

from rlm._util.text import counted
from rlm.events import Diverged, Event, OutputStreamed, RunEnded, SessionLost
from rlm.records.recorders._details import DETAILED, Details
from rlm.records.recorders._progress import LiveRun, Progress
from rlm.records.recorders.console import divergence, harmless, loss, one_line, summary

__all__ = ["LiveRecorder"]

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TURNS_PER_SECOND = 8
EXCERPT_COLUMNS = (12, 60)
"""The minimum and maximum number of columns for an excerpt of a prompt."""

ASIDE = 6
"""Parts of this rank and above are left out before others are shortened."""

ROWS_PER_NESTED_CHILD = 4
AT_ONCE_SECONDS = 2.0
"""If a call began this soon after its cell, the cell's age is not shown as well."""

SECONDS_AS_SUCH, MINUTES_AS_SUCH = 120, 120


class Glyphs(NamedTuple):
    """The characters that the tree is drawn with."""

    branch: str
    last: str
    beside: str
    below: str
    joint: str
    ellipsis: str
    spinner: str


PRETTY = Glyphs("├─ ", "└─ ", "│  ", "   ", " · ", "…", SPINNER)
PLAIN = Glyphs("|- ", "`- ", "|  ", "   ", " - ", "...", "*")


class Line(NamedTuple):
    """One row: a text, followed by a faint one."""

    text: str
    faint: str = ""
    bold: bool = False

    @property
    def plain(self) -> str:
        return self.text + self.faint


class Part(NamedTuple):
    """A piece of a line. The higher its rank, the sooner it is shortened or left out."""

    text: str
    rank: int
    short: str = ""


class Drawing:
    """The tree at one moment, as lines."""

    def __init__(self, progress: Progress, now: float, columns: int, glyphs: Glyphs) -> None:
        self._progress = progress
        self._now = now
        self._columns = max(1, columns)
        self._glyphs = glyphs

    def lines(self, rows: int, since: float, notes: list[str]) -> list[Line]:
        """Return at most `rows` lines: the head, the runs and the last notes; at the end, notes."""
        if self._progress.is_over:
            return [Line(self._cut(note)) for note in notes[: max(0, rows)]]
        notes = notes[: max(0, rows - 2)]
        body = self._runs(max(0, rows - 1 - len(notes)))
        cut = [Line(self._cut(note)) for note in notes]
        return [self._head(since), *body, *cut]

    def streamed(self, answer: str, rows: int) -> list[Line]:
        """Return the end of an answer that is being written, in at most `rows` lines."""
        lines = [
            line[at : at + self._columns]
            for line in harmless(answer).split("\n")
            for at in range(0, len(line), self._columns)
        ]
        return [Line(self._cut(line)) for line in lines[-rows:]] if rows > 0 else []

    # -- the head ----------------------------------------------------------------------------

    def _head(self, since: float) -> Line:
        progress = self._progress
        roots = progress.roots
        started = min((root.started for root in roots.values()), default=since)
        turn = int(self._now * TURNS_PER_SECOND) % len(self._glyphs.spinner)
        parts = [Part(f"{self._glyphs.spinner[turn]} {age(self._now - started)}", 0)]
        if not roots:
            parts.append(Part("reading the context", 1))
            return Line(self._fitted(parts, self._columns), bold=True)
        if waiting := progress.requests_open:
            parts.append(Part(f"{counted(waiting, 'call')} open", 1, f"{waiting:,} open"))
        parts.append(
            Part(counted(progress.tokens, "token"), 2, f"{shortly(progress.tokens)} tokens")
        )
        if progress.cost_usd is not None:
            parts.append(Part(f"${progress.cost_usd:.4f}", 3, f"${progress.cost_usd:.2f}"))
        parts += self._asides(progress)
        if len(roots) == 1:
            root = next(iter(roots.values()))
            parts += [Part(one_line(root.model, 60), 8), Part(f"run {one_line(root.run_id)}", 9)]
        return Line(self._fitted(parts, self._columns), bold=True)

    def _asides(self, progress: Progress) -> list[Part]:
        found = []
        if journal := progress.from_journal:
            said = f"{stored_replies(journal)}, free"
            found.append(Part(said, 4, f"{journal:,} from the journal"))
        if cache := progress.from_cache:
            found.append(Part(f"{cache:,} from the cache", 6))
        if progress.child_runs:
            found.append(Part(counted(progress.child_runs, "child run"), 7))
        if progress.retries:
            found.append(Part(counted(progress.retries, "retry", "retries"), 5))
        return found

    # -- the runs ----------------------------------------------------------------------------

    def _runs(self, rows: int) -> list[Line]:
        roots = self._progress.roots
        if len(roots) != 1:
            return self._branches(roots, 0, "", rows, "run")
        run = next(iter(roots.values()))
        line = self._run(run, self._glyphs.last, "")
        below = self._branches(
            run.children, run.children_done, self._glyphs.below, rows - 1, "child run"
        )
        return [line, *below][:rows]

    def _branches(
        self, runs: dict[str, LiveRun], done: int, indent: str, rows: int, noun: str
    ) -> list[Line]:
        """Return lines for the oldest runs and their children, and the number of the others."""
        if rows <= 0 or not (runs or done):
            return []
        glyphs = self._glyphs
        shown = _rows_for_runs(runs, done, rows)
        rest = _rest(len(runs) - shown, done, noun)
        spare = rows - shown - bool(rest)
        lines = []
        for index, run in enumerate(islice(runs.values(), shown)):
            is_last = index == shown - 1 and not rest
            label = f"{noun.removesuffix(' run')} {one_line(run.run_id[-6:])}"
            lines.append(
                self._run(run, indent + (glyphs.last if is_last else glyphs.branch), label)
            )
            deeper = indent + (glyphs.below if is_last else glyphs.beside)
            share = spare // (shown - index)
            below = self._branches(run.children, run.children_done, deeper, share, "child run")
            spare -= len(below)
            lines += below
        return [*lines, Line(self._cut(f"{indent}{glyphs.last}{rest}"))] if rest else lines

    def _run(self, run: LiveRun, indent: str, label: str) -> Line:
        parts = [Part(label, 5, label[-6:])] if label else []
        parts += [Part(f"step {run.step}", 3)] if run.step else []
        parts.append(Part(one_line(run.doing, 60), 0))
        if run.calls:
            parts.append(Part(_calls(run), 1, _calls_shortly(run)))
        if run.data_requests:
            parts.append(Part(counted(run.data_requests, "data request"), 2))
        slowest = run.slowest
        waited = "" if slowest is None else age(self._now - slowest.started)
        if slowest is not None and slowest.started - run.since < AT_ONCE_SECONDS:
            parts.append(Part(f"slowest {waited}", 4, waited))
        else:
            parts.append(Part(age(self._now - run.since), 4))
            parts += [Part(f"slowest {waited}", 6)] if waited else []
        text = self._cut(indent + self._fitted(parts, self._columns - cell_len(indent)))
        left = self._columns - cell_len(text) - 2
        if slowest is None or left < EXCERPT_COLUMNS[0] or not text.endswith(f"slowest {waited}"):
            return Line(text)
        excerpt = one_line(slowest.prompt, EXCERPT_COLUMNS[1])
        return Line(text, f": {self._cut(excerpt, left)}" if excerpt else "")

    # -- columns -----------------------------------------------------------------------------

    def _fitted(self, parts: list[Part], columns: int) -> str:
        """Fit the parts into columns: drop asides, then shorten parts, then drop more."""
        texts = [part.text for part in parts]
        by_rank = sorted(range(len(parts)), key=lambda at: -parts[at].rank)
        asides = [(at, "") for at in by_rank if parts[at].rank >= ASIDE]
        shorter = [(at, parts[at].short) for at in by_rank if parts[at].short]
        fewer = [(at, "") for at in by_rank if parts[at].rank > 0]
        for at, text in (*asides, *shorter, *fewer):
            if cell_len(self._joined(texts)) <= columns:
                break
            texts[at] = text if texts[at] else ""
        return self._cut(self._joined(texts), columns)

    def _joined(self, texts: list[str]) -> str:
        return self._glyphs.joint.join(filter(None, texts))

    def _cut(self, text: str, columns: int | None = None) -> str:
        """Return the text in at most `columns`, with an ellipsis where it is cut."""
        columns = self._columns if columns is None else max(1, columns)
        if cell_len(text) <= columns:
            return text
        mark = self._glyphs.ellipsis if columns > len(self._glyphs.ellipsis) else ""
        return set_cell_size(text, columns - len(mark)).rstrip() + mark


def _rows_for_runs(runs: dict[str, LiveRun], done: int, rows: int) -> int:
    """Return how many runs get their own row: fewer if their children need rows too."""
    fitting = rows - 1 if len(runs) + bool(done) > rows else len(runs)
    few = max(1, (rows - 1) // ROWS_PER_NESTED_CHILD)
    nested = any(run.children or run.children_done for run in islice(runs.values(), fitting))
    return min(fitting, few) if nested else fitting


def _rest(hidden: int, done: int, noun: str) -> str:
    parts = [f"and {counted(hidden, f'more {noun}')}"] if hidden > 0 else []
    if done:
        parts.append(f"{done:,} done" if hidden > 0 else f"{counted(done, noun)} done")
    return ", ".join(parts)


def _calls(run: LiveRun) -> str:
    text = f"{run.calls_done:,} of {counted(run.calls, 'call')} done, {len(run.open_calls):,} open"
    text += f", {run.calls_failed:,} failed" if run.calls_failed else ""
    return text + (f", {counted(run.retries, 'retry', 'retries')}" if run.retries else "")


def _calls_shortly(run: LiveRun) -> str:
    failed = f", {run.calls_failed:,} failed" if run.calls_failed else ""
    return f"{run.calls_done:,}/{counted(run.calls, 'call')}{failed}"


def stored_replies(count: int) -> str:
    return f"{counted(count, 'reply', 'replies')} from the journal"


def age(seconds: float) -> str:
    """Return an age in whole seconds, minutes or hours, rounded down so that it only grows."""
    whole = max(0, int(seconds))
    minutes = whole // 60
    if whole < SECONDS_AS_SUCH:
        return f"{whole} s"
    if minutes < MINUTES_AS_SUCH:
        return f"{minutes} m {whole % 60:02} s"
    return f"{minutes // 60} h {minutes % 60:02} m"


def shortly(number: int) -> str:
    """Return a large number in few columns: 950, 12k, 3.4M."""
    if number < 1_000:
        return str(number)
    return f"{number // 1_000:,}k" if number < 1_000_000 else f"{number / 1_000_000:,.1f}M"


HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
WRAP_OFF, WRAP_ON = "\x1b[?7l", "\x1b[?7h"
BOLD, FAINT, USUAL = "\x1b[1m", "\x1b[2m", "\x1b[0m"
CLEAR_ROW, CLEAR_BELOW = "\x1b[K", "\x1b[J"
USUAL_SIZE = 80, 24


class Screen:
    """Rows at the bottom of a terminal, redrawn in place, and lines that stay above them.

    Each frame is one write that overwrites the old rows, so nothing flickers. The cursor is hidden
    and wrapping is off only within that write: even after a kill, the terminal is as before.
    A character of doubtful width can shift only its own row. Not thread-safe.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encoding = stream.encoding or "ascii"
        self._columns = USUAL_SIZE[0]
        self._widths: list[int] = []
        self._usable = True
        self.is_unicode = self._encoding.lower().replace("-", "") == "utf8"

    def size(self) -> tuple[int, int]:
        """Return columns and rows as they are now: terminals are resized during runs."""
        try:
            columns, rows = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            return USUAL_SIZE
        return (columns, rows) if columns > 0 and rows > 0 else USUAL_SIZE

    def draw(self, above: list[str], lines: list[Line]) -> None:
        """Print lines that stay, then the rows as they should be now.

        A stream that can no longer be written to is ignored: progress never ends a run.
        """
        if not self._usable or not (above or lines or self._widths):
            return
        columns, _ = self.size()
        kept = "".join(f"{line}\n" for line in above)
        drawn = "\n".join(_styled(line) + CLEAR_ROW for line in lines)
        afresh = CLEAR_BELOW if above or columns != self._columns else ""
        picture = (
            f"{HIDE_CURSOR}{self._to_first_row(columns)}{afresh}{kept}"
            f"{WRAP_OFF}{drawn}{CLEAR_BELOW}{WRAP_ON}{SHOW_CURSOR}"
        )
        self._columns, self._widths = columns, [cell_len(line.plain) for line in lines]
        try:
            self._stream.write(picture.encode(self._encoding, "replace").decode(self._encoding))
            self._stream.flush()
        except (OSError, ValueError):
            self._usable = False

    def _to_first_row(self, columns: int) -> str:
        """Return the escape that moves above the old rows, which a narrow terminal has wrapped."""
        narrower = columns < self._columns
        rows = sum(-(-max(1, width) // columns) if narrower else 1 for width in self._widths)
        return "\r" + (f"\x1b[{rows - 1}A" if rows > 1 else "")


def _styled(line: Line) -> str:
    text = f"{BOLD}{line.text}{USUAL}" if line.bold else line.text
    return f"{text}{FAINT}{line.faint}{USUAL}" if line.faint else text


SAID = frozenset({*DETAILED, Diverged, RunEnded, SessionLost})
"""Events that may add a line above the tree."""

SHOWN_NOTES = 3
STREAMED_CHARS = 8_000
WAITING_LINES = 10_000
"""How many lines may wait for a stopped terminal (Ctrl-S) before the oldest are dropped."""


class LiveRecorder:
    """Use it as a context manager around runs; `verbose` prints what cells do above the tree.

    The end of an answer that arrives in pieces is shown below the tree.
    Recording only counts: a separate thread draws, so that a slow terminal delays no run.
    """

    wants_pieces = True

    def __init__(self, stream: TextIO, *, verbose: bool = False) -> None:
        self._screen = Screen(stream)
        self._glyphs = PRETTY if self._screen.is_unicode else PLAIN
        self._details = Details(stream) if verbose else None
        self._answer = ""
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
        """Remove the tree, and print the lines that stay."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._screen.draw(self._printed(), [])

    def record(self, event: Event) -> None:
        with self._lock:
            if type(event) in SAID:
                self._above.extend(self._said(event))
            elif isinstance(event, OutputStreamed):
                self._answer = (self._answer + event.text)[-STREAMED_CHARS:]
            if isinstance(event, RunEnded) and event.parent_id is None:
                self._answer = ""
            self._progress.add(event)

    def note(self, text: str) -> None:
        """Show a line below the tree until the end."""
        self._notes.append(one_line(text))

    def lines(self, columns: int, rows: int) -> list[Line]:
        """Return the tree as it is now, for a terminal of that size."""
        with self._lock:
            drawing = Drawing(self._progress, time.monotonic(), columns - 1, self._glyphs)
            answer = drawing.streamed(self._answer, (rows - 1) // 3)
            return drawing.lines(rows - 1 - len(answer), self._since, list(self._notes)) + answer

    def _said(self, event: Event) -> list[str]:
        """Return the lines that an event adds above the tree; ends of children are only counted."""
        if type(event) in DETAILED:
            details = [] if self._details is None else self._details.of(event)
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
