"""Progress in a notebook: one output per run, updated in place, which becomes the run's card.

The updates come from the event loop of the run, in the context of the cell that asked: a kernel
sends them from any thread. There are at most a few per second, however many events there are.
"""

import asyncio
import threading
import time
from typing import Any

from rlm._util.html_card import Card, card_html
from rlm._util.notebook import LiveOutput
from rlm._util.text import counted
from rlm.events import Event, OperatorStarted, OutputStreamed, RunEnded, RunStarted
from rlm.records.recorders._progress import Progress
from rlm.results.cards import Outline, ended_card, figures, problem_of

__all__ = ["NotebookRecorder"]

OUTPUTS_PER_CELL = 4
"""A cell that starts more runs shows the others together."""
STREAMED_CHARS = 8_000
FIRST_SECONDS, LAST_SECONDS = 0.5, 5.0
"""The time between two updates, at first and after some minutes."""


class NotebookRecorder:
    """Shows the runs of an `RLM` in the notebook whose kernel it runs in."""

    wants_pieces = True

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._lock = threading.Lock()
        self._views: dict[str, _View] = {}
        self._others = _Others(shell)
        self._cell, self._outputs = -1, 0

    def record(self, event: Event) -> None:
        """Pass an event on to the view of its run tree."""
        with self._lock:
            if isinstance(event, RunStarted):
                self._views[event.run_id] = self._view_of(event)
            view = self._views.get(event.run_id)
            if isinstance(event, RunEnded):
                self._views.pop(event.run_id, None)
        if view is not None:
            view.record(event)

    def _view_of(self, event: RunStarted) -> "_View":
        if event.parent_id is not None and event.parent_id in self._views:
            return self._views[event.parent_id]
        if self._cell != self._shell.execution_count:
            self._cell, self._outputs = self._shell.execution_count, 0
            self._others = _Others(self._shell)
        self._outputs += 1
        return _OneRun(self._shell) if self._outputs < OUTPUTS_PER_CELL else self._others


class _View:
    """An output that is redrawn from time to time until it ends."""

    def __init__(self, shell: Any) -> None:
        self._output = LiveOutput(shell)
        self._progress = Progress()
        self._began = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def record(self, event: Event) -> None:
        raise NotImplementedError

    def _draw(self) -> None:
        raise NotImplementedError

    def _begin(self) -> None:
        """Draw now, and repeatedly until the task of the run has ended."""
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(lambda _: self._left())
        self._tick()

    def _tick(self) -> None:
        self._draw()
        pause = min(LAST_SECONDS, FIRST_SECONDS + (time.monotonic() - self._began) / 60)
        self._timer = asyncio.get_running_loop().call_later(pause, self._tick)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _left(self) -> None:
        """Handle the end of the task, whether or not the run has ended."""

    def _figures(self) -> list[str]:
        progress = self._progress
        shown = [f"{time.monotonic() - self._began:.0f} s"]
        if progress.requests_open:
            shown.append(f"{counted(progress.requests_open, 'call')} open")
        shown += [counted(progress.tokens, "token")] if progress.tokens else []
        return shown + ([] if progress.cost_usd is None else [f"${progress.cost_usd:.4f}"])


class _OneRun(_View):
    """A run tree: its steps while it works, then its card."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._outline = Outline()
        self._answer = ""
        self._root: str | None = None
        self._operator = ""

    def record(self, event: Event) -> None:
        self._outline.add(event)
        self._progress.add(event)
        if isinstance(event, OutputStreamed):
            self._answer = (self._answer + event.text)[-STREAMED_CHARS:]
        elif isinstance(event, OperatorStarted):
            self._operator = f"{event.name}: {counted(event.items, 'item')}"
        elif isinstance(event, RunStarted) and self._root is None:
            self._root = event.run_id
            self._begin()
        elif isinstance(event, RunEnded) and event.run_id == self._root:
            self._end(event)

    def _draw(self) -> None:
        outline, facts = self._outline, self._figures()
        run = self._progress.roots.get(self._root or "")
        if run is not None:
            facts.insert(1, run.doing if run.step == 0 else f"step {run.step}: {run.doing}")
            done = f"{run.calls_done:,} of {counted(run.calls, 'call')} done"
            facts[2:2] = [done] if run.calls else []
        facts[1:1] = [self._operator] if self._operator else []
        card = Card(
            self._answer,
            facts,
            query=outline.query,
            steps=outline.steps,
            steps_in_all=outline.steps_in_all,
            is_running=True,
        )
        self._output.show(card_html(card), " · ".join(["running", *facts]))

    def _end(self, event: RunEnded) -> None:
        self._stop()
        facts = figures(event.steps, event.usage, event.seconds)
        card = ended_card(
            self._outline,
            event.answer,
            facts,
            problem=problem_of(event, event.answer),
            citations=event.citations,
            command=event.run_id,
        )
        text = f"{event.stop_reason}: {', '.join(facts)}"
        self._output.end(card_html(card), text, event.run_id)

    def _left(self) -> None:
        """Show that the run has ended, if no event did: its task was cancelled, or has failed."""
        if self._timer is not None:
            self._stop()
            card = ended_card(self._outline, None, self._figures(), problem="The run was stopped.")
            self._output.show(card_html(card), "stopped")


class _Others(_View):
    """Many runs of one cell, counted."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._begun = self._done = self._failed = 0

    def record(self, event: Event) -> None:
        self._progress.add(event)
        is_root = event.parent_id is None
        if isinstance(event, RunStarted) and is_root:
            self._begun += 1
            if self._timer is None:
                self._begin()
        elif isinstance(event, RunEnded) and is_root:
            self._done += 1
            self._failed += event.stop_reason != "answer"
            if not self._progress.roots:
                self._stop()
                self._draw()

    def _draw(self) -> None:
        runs = f"{self._done:,} of {counted(self._begun, 'more run')} done"
        failed = [f"{self._failed:,} without an answer"] if self._failed else []
        facts = [runs, *failed, *self._figures()]
        card = Card("", facts, is_running=self._timer is not None)
        self._output.show(card_html(card), " · ".join(facts))

    def _left(self) -> None:
        if not self._progress.roots:
            self._stop()
