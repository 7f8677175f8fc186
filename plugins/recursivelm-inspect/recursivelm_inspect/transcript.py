"""Cells and endings of a run in the transcript of a sample."""

from inspect_ai.log import transcript

from rlm.events import CellEnded, CellOutput, CellStarted, Event, RunEnded

__all__ = ["TranscriptRecorder"]

MAX_CHARS = 20_000
"""How much of the code and of each stream of a cell the log holds."""


class TranscriptRecorder:
    """Add every cell with its output, and how the run ended, as info events with source "rlm"."""

    def __init__(self) -> None:
        self._transcript = transcript()
        self._cells: dict[tuple[str, int, int], dict[str, str]] = {}

    def record(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self._transcript.info(
                {
                    "run": event.run_id,
                    "depth": event.depth,
                    "stop_reason": event.stop_reason,
                    "steps": event.step,
                },
                source="rlm",
            )
        if not isinstance(event, CellStarted | CellOutput | CellEnded):
            return
        key = (event.run_id, event.step, event.cell)
        if isinstance(event, CellStarted):
            self._cells[key] = {"code": _cut(event.code)}
        elif isinstance(event, CellOutput):
            self._cells.setdefault(key, {})[event.stream] = _cut(event.text)
        else:
            self._ended(event, self._cells.pop(key, {}))

    def _ended(self, event: CellEnded, seen: dict[str, str]) -> None:
        place = {"depth": event.depth, "step": event.step, "cell": event.cell}
        facts = {"seconds": round(event.seconds, 3), "calls": event.calls}
        error = (
            {}
            if event.error_type is None
            else {"error": f"{event.error_type}: {event.error_message}"}
        )
        self._transcript.info({**place, **seen, **facts, **error}, source="rlm")


def _cut(text: str) -> str:
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    return f"{text[:half]}\n… {len(text) - MAX_CHARS:,} characters are left out …\n{text[-half:]}"
