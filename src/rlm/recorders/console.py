"""Progress as plain lines, for people: what a run does while it does it."""

import re
from typing import TextIO

from rlm.events import (
    CallEnded,
    CallRetried,
    CellEnded,
    CellOutput,
    CellStarted,
    Event,
    RunEnded,
    RunStarted,
    SessionLost,
    StepStarted,
)

__all__ = ["ConsoleRecorder", "cell_details", "harmless", "loss", "one_line", "retry", "summary"]

CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
SHOWN_LINES = 30
SHOWN_CHARS = 2_000
LINE_CHARS = 300


def harmless(text: str) -> str:
    """Text from a model or a sandbox, with everything a terminal could obey made visible."""
    return CONTROL.sub(_visible, text.replace("\r\n", "\n"))


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str, limit: int = LINE_CHARS) -> str:
    """Harmless text on a single line, so that it can't pass for lines of ours."""
    shown = harmless(" ".join(text.split()))
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def summary(event: RunEnded) -> str:
    """How a run ended, in one line."""
    usage = event.usage
    cost = "" if usage.cost_usd is None else f", ${usage.cost_usd:.4f}"
    named = event.limit and event.limit != event.stop_reason
    why = f"{event.stop_reason} ({event.limit})" if named else event.stop_reason
    return (
        f"run {event.run_id} ended: {why}, {_count(event.steps, 'step')}, "
        f"{_count(usage.requests, 'request')}, {usage.total_tokens:,} tokens{cost}, "
        f"{event.seconds:.2f} s"
    )


def loss(event: SessionLost) -> str:
    """What became of a worker that died, in one line."""
    if event.restored:
        return f"the worker was lost, its variables were restored: {event.reason}"
    return f"the session was lost: {event.reason}"


def retry(event: CallRetried) -> str:
    """That a run's own request failed and is sent again, in one line."""
    return f"asking {event.model} again in {event.wait_seconds:.1f} s: {event.error}"


def cell_details(event: CellStarted | CellOutput) -> list[str]:
    """A cell's code or output, cut, each line behind a mark that tells it from lines of ours."""
    is_code = isinstance(event, CellStarted)
    text, mark = (event.code, "> ") if isinstance(event, CellStarted) else (event.text, "| ")
    lines = harmless(text[:SHOWN_CHARS]).splitlines()
    cut = len(text) > SHOWN_CHARS or len(lines) > SHOWN_LINES
    end = [f"{mark}… ({len(text):,} characters in all)"] if cut else []
    what = "runs" if is_code else "wrote"
    head = one_line(f"cell {event.cell} of step {event.step}, run {event.run_id[-6:]}, {what}:")
    return [head, *(mark + line for line in lines[:SHOWN_LINES]), *end]


class ConsoleRecorder:
    """One line per step and per notable event, indented by depth; `verbose` adds what cells do.

    A stream that can't be written to any more is left alone: progress never ends a run.
    """

    def __init__(self, stream: TextIO, *, verbose: bool = False) -> None:
        self._stream = stream
        self._verbose = verbose
        self._failed_calls: dict[str, int] = {}
        self._open = True

    def __enter__(self) -> "ConsoleRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put away."""

    def record(self, event: Event) -> None:
        if isinstance(event, CallEnded) and event.error:
            count = self._failed_calls.get(event.run_id, 0)
            self._failed_calls[event.run_id] = count + 1
        for line in self._lines(event):
            self._write("  " * event.depth + line)

    def note(self, text: str) -> None:
        """A line of the caller's own."""
        self._write(one_line(text))

    def _write(self, line: str) -> None:
        if not self._open:
            return
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._open = False

    def _lines(self, event: Event) -> list[str]:
        if isinstance(event, CellStarted | CellOutput):
            details = cell_details(event) if self._verbose else []
            return [f"    {line}" for line in details]
        line = self._line(event)
        indent = "  " if isinstance(event, CellEnded | CallRetried | SessionLost) else ""
        return [] if line is None else [indent + one_line(line)]

    def _line(self, event: Event) -> str | None:
        if isinstance(event, RunStarted):
            return f"run {event.run_id} on {event.model}, context of {event.context_bytes:,} bytes"
        if isinstance(event, StepStarted):
            return f"step {event.step}"
        if isinstance(event, CellEnded):
            return f"cell {event.cell}: {event.seconds:.2f} s{self._calls(event)}{_error(event)}"
        if isinstance(event, SessionLost):
            return loss(event)
        if isinstance(event, CallRetried):
            return retry(event) if event.call_id is None else None
        return summary(event) if isinstance(event, RunEnded) else None

    def _calls(self, event: CellEnded) -> str:
        failed = self._failed_calls.pop(event.run_id, 0)
        if not event.calls:
            return ""
        return f", {_count(event.calls, 'call')}" + (f" ({failed} failed)" if failed else "")


def _error(event: CellEnded) -> str:
    return f", {event.error_type}: {event.error_message}" if event.error_type else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
