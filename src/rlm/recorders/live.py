"""Progress as a small live tree in a terminal, with rich: run, step, cell, calls, child runs.

It is redrawn in place and gone at the end, when one line sums the run up. All text that is not
ours goes through `harmless` and into `Text` objects, so neither the terminal nor rich obeys it.
"""

import threading
import time
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from rlm.events import CellOutput, CellStarted, Event, SessionLost
from rlm.recorders._progress import Progress, RunState
from rlm.recorders.console import cell_details, loss, one_line, summary

__all__ = ["LiveRecorder"]

REFRESHES_PER_SECOND = 8
SHOWN_CHILDREN = (5, 2, 1)
"""How many child runs are shown one by one, at depth 1, 2 and below."""

SHOWN_NOTES = 3
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
GUIDES = {True: ("├─ ", "└─ ", "│  ", "   "), False: ("|- ", "`- ", "|  ", "   ")}


class LiveRecorder:
    """Use it as a context manager around the run; `verbose` prints what cells do above the tree."""

    def __init__(self, stream: TextIO, *, verbose: bool = False) -> None:
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._pretty = (stream.encoding or "").lower().replace("-", "") == "utf8"
        self._verbose = verbose
        self._lock = threading.RLock()
        self._progress = Progress()
        self._notes: list[str] = []
        self._started = time.monotonic()
        self._live = Live(
            get_renderable=lambda: Group(*self.lines()),
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> "LiveRecorder":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the tree away and say in one line how the run ended."""
        self._live.stop()
        if (ended := self._progress.ended) is not None:
            self._print(one_line(summary(ended)))

    def record(self, event: Event) -> None:
        with self._lock:
            self._progress.add(event)
        if isinstance(event, CellStarted | CellOutput) and self._verbose:
            for line in cell_details(event):
                self._print("  " * event.depth + line)
        elif isinstance(event, SessionLost):
            self._print(one_line(loss(event)))

    def note(self, text: str) -> None:
        """A line below the tree, until the end."""
        with self._lock:
            self._notes.append(one_line(text))

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    # -- drawing -----------------------------------------------------------------------------

    def lines(self) -> list[Text]:
        """The tree as it is now, cut to what the terminal can show."""
        with self._lock:
            lines = [self._head(), *self._body(), *self._notes[-SHOWN_NOTES:]]
        lines = lines[: max(1, self._console.height - 2)]
        texts = [Text(line, no_wrap=True, overflow="ellipsis") for line in lines]
        texts[0].stylize("bold")
        return texts

    def _head(self) -> str:
        """What matters most comes first: a narrow terminal cuts the end."""
        now = time.monotonic()
        spinner = SPINNER[int(now * REFRESHES_PER_SECOND) % len(SPINNER)] if self._pretty else "*"
        root, usage = self._progress.root, self._progress.usage
        parts = [f"{spinner} {now - self._started:.0f} s"]
        if root is None:
            return self._joined([*parts, "reading the context"])
        parts.append(f"{usage.total_tokens:,} tokens")
        if usage.cost_usd is not None:
            parts.append(f"${usage.cost_usd:.4f}")
        return self._joined([*parts, root.model, f"run {root.run_id}"])

    def _body(self) -> list[str]:
        root = self._progress.root
        if root is None:
            return []
        last, through = GUIDES[self._pretty][1], GUIDES[self._pretty][3]
        return [last + self._status(root), *self._children(root, through, 0)]

    def _status(self, run: RunState) -> str:
        parts = [f"step {run.step}"] if run.step else []
        parts.append(run.doing)
        if run.calls:
            parts.append(_calls(run))
        parts.append(f"{time.monotonic() - run.since:.0f} s")
        return self._joined(parts)

    def _children(self, run: RunState, indent: str, level: int) -> list[str]:
        """The oldest few child runs one by one, and how many there are besides."""
        branch, last, beside, below = GUIDES[self._pretty]
        most = SHOWN_CHILDREN[min(level, len(SHOWN_CHILDREN) - 1)]
        children = list(run.children.values())
        rest = _rest(len(children) - most, run.children_done)
        lines = []
        for index, child in enumerate(children[:most]):
            ends = index == min(len(children), most) - 1 and not rest
            status = self._joined([f"child {child.run_id[-6:]}", self._status(child)])
            lines.append(indent + (last if ends else branch) + status)
            lines += self._children(child, indent + (below if ends else beside), level + 1)
        return [*lines, f"{indent}{last}{rest}"] if rest else lines

    def _joined(self, parts: list[str]) -> str:
        return one_line((" · " if self._pretty else " - ").join(parts))


def _calls(run: RunState) -> str:
    open_calls = run.calls - run.calls_done
    failed = f", {run.calls_failed:,} failed" if run.calls_failed else ""
    return f"{run.calls_done:,} of {run.calls:,} calls done, {open_calls:,} open{failed}"


def _rest(hidden: int, done: int) -> str:
    more = f"{hidden:,} more child runs" if hidden > 1 else "1 more child run"
    parts = [more] if hidden > 0 else []
    if done:
        parts.append(f"{done:,} done")
    return ", ".join(parts)
