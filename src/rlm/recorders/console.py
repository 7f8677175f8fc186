"""Progress as plain lines, for people: what a run does while it does it."""

import re
from typing import TextIO

from rlm.events import CellEnded, Event, RunEnded, RunStarted, SessionLost, StepStarted

__all__ = ["ConsoleRecorder", "harmless"]

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Text from a model or a sandbox, with everything a terminal could obey made visible."""
    shown = CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
    return shown.encode("utf-8", "backslashreplace").decode()


class ConsoleRecorder:
    """One line per step and per notable event, indented by depth."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def record(self, event: Event) -> None:
        line = self._line(event)
        if line:
            self._stream.write("  " * event.depth + harmless(line) + "\n")
            self._stream.flush()

    def _line(self, event: Event) -> str | None:
        if isinstance(event, RunStarted):
            return f"run {event.run_id} on {event.model}, context of {event.context_bytes:,} bytes"
        if isinstance(event, StepStarted):
            return f"step {event.step}"
        if isinstance(event, CellEnded):
            calls = f", {event.calls} calls" if event.calls else ""
            error = f", {event.error_type}: {event.error_message}" if event.error_type else ""
            return f"  cell {event.cell}: {event.seconds:.2f} s{calls}{error}"
        if isinstance(event, SessionLost):
            return f"  the session was lost: {event.reason}"
        if isinstance(event, RunEnded):
            return self._ended(event)
        return None

    def _ended(self, event: RunEnded) -> str:
        usage = event.usage
        cost = "" if usage.cost_usd is None else f", ${usage.cost_usd:.4f}"
        why = event.stop_reason + (f" ({event.limit})" if event.limit else "")
        return (
            f"ended: {why} after {event.steps} steps, {usage.requests} requests, "
            f"{usage.total_tokens:,} tokens{cost}, {event.seconds:.2f} s"
        )
