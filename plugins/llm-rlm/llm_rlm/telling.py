"""Events of a run as `llm` has them: reasoning as it goes on, cells as tools that ran elsewhere.

llm writes all of this to its logs. Of what a cell printed only the two ends are told, so that a
context which is printed does not end up there.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llm.parts import StreamEvent

from llm_rlm.texts import cut, plain

if TYPE_CHECKING:
    from rlm import events

__all__ = ["CELL_TOOL", "Telling"]

CELL_TOOL = "python"
TOLD_OUTPUT_CHARS = 2_000
TOLD_CODE_CHARS = 20_000
TOLD_PROSE_CHARS = 1_000
LINE_CHARS = 160
MILESTONES = frozenset(base * 10**power for base in (1, 2, 5) for power in range(7))


class Telling:
    """Turns events into parts, one after the other. `hides_reasoning` leaves the cells only."""

    def __init__(self, *, hides_reasoning: bool = False) -> None:
        self._hides_reasoning = hides_reasoning
        self._printed: list[str] = []
        self._calls = 0

    def parts(self, event: "events.Event") -> Iterator[StreamEvent]:
        """What an event adds; most add nothing."""
        if event.depth == 0:
            yield from self._cell_parts(event)
        if line := self._line(event):
            yield from self._reasoning("  " * event.depth + line)

    def _reasoning(self, line: str) -> Iterator[StreamEvent]:
        if not self._hides_reasoning:
            yield StreamEvent(type="reasoning", chunk=plain(f"{line}\n"))

    def _cell_parts(self, event: "events.Event") -> Iterator[StreamEvent]:
        from rlm import events

        if isinstance(event, events.CellStarted):
            self._printed = []
            name = _call_id(event.run_id, event.step, event.cell)
            code = plain(cut(event.code, TOLD_CODE_CHARS))
            yield _tool("tool_call_name", CELL_TOOL, name)
            yield _tool("tool_call_args", json.dumps({"code": code}), name)
        elif isinstance(event, events.CellOutput):
            self._printed.append(cut(event.text, TOLD_OUTPUT_CHARS))
        elif isinstance(event, events.CellEnded):
            if event.error_type:
                self._printed.append(
                    event.traceback or f"{event.error_type}: {event.error_message}"
                )
            name = _call_id(event.run_id, event.step, event.cell)
            nothing = "(the answer was handed in)" if event.submitted else "(no output)"
            output = cut("\n".join(self._printed), TOLD_OUTPUT_CHARS) or nothing
            yield _tool("tool_result", plain(output), name)

    def _line(self, event: "events.Event") -> str:
        """An event in a line, if people want to hear of it."""
        from rlm import events

        match event:
            case events.RunStarted() if event.depth:
                return f"child run: {_first_line(event.query)}"
            case events.ModelReplied() if event.error is None:
                return f"step {event.step}: {_prose(event)}"
            case events.CallEnded():
                self._calls += 1
                failed = f"; this one failed: {_first_line(event.error)}" if event.error else ""
                return self._counted(failed) if failed or self._calls in MILESTONES else ""
            case events.CallRetried():
                return f"again in {event.wait_seconds:.1f} s: {_first_line(event.error)}"
            case events.SessionLost():
                return f"the session was lost: {_first_line(event.reason)}"
            case events.Compacted():
                return "the history was compacted"
            case events.RunEnded() if event.stop_reason != "answer":
                return f"ended: {event.limit or event.stop_reason}"
        return ""

    def _counted(self, note: str) -> str:
        return f"  {self._calls:,} {'call' if self._calls == 1 else 'calls'}{note}"


def _tool(kind: str, chunk: str, call_id: str) -> StreamEvent:
    return StreamEvent(
        type=kind, chunk=chunk, tool_call_id=call_id, server_executed=True, tool_name=CELL_TOOL
    )


def _call_id(run_id: str, step: int, cell: int) -> str:
    return f"{run_id[-12:]}-{step}-{cell}"


def _prose(event: "events.ModelReplied") -> str:
    """What the model wrote before its code; the code itself is a part of its own."""
    prose = event.text.partition("```")[0].strip() or event.reasoning.strip()
    return cut(prose, TOLD_PROSE_CHARS) or "code"


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} …"
