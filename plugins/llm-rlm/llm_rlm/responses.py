"""Convert events and results of a run to parts of an llm response.

Progress becomes reasoning, and cells become tool calls that ran elsewhere. llm writes all of this
to its logs, so the output of a cell is cut to its two ends; a printed context does not get there.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import llm
from llm.parts import StreamEvent

from llm_rlm.common import cut, replace_surrogates

if TYPE_CHECKING:
    from rlm import RunResult, events
    from rlm.messages import Usage

__all__ = ["CELL_TOOL", "EventParts", "answer_parts"]

CELL_TOOL = "python"
MAX_OUTPUT_CHARS = 2_000
MAX_CODE_CHARS = 20_000
MAX_PROSE_CHARS = 1_000
LINE_CHARS = 160
MILESTONES = frozenset(base * 10**power for base in (1, 2, 5) for power in range(7))


class EventParts:
    """Convert events to parts, in order; with `hides_reasoning`, only cells."""

    def __init__(self, *, hides_reasoning: bool = False) -> None:
        self._hides_reasoning = hides_reasoning
        self._printed: list[str] = []
        self._calls = 0

    def parts(self, event: "events.Event") -> Iterator[StreamEvent]:
        """Return the parts of an event; most events have none."""
        if event.depth == 0:
            yield from self._cell_parts(event)
        if line := self._line(event):
            yield from self._reasoning("  " * event.depth + line)

    def _reasoning(self, line: str) -> Iterator[StreamEvent]:
        if not self._hides_reasoning:
            yield StreamEvent(type="reasoning", chunk=replace_surrogates(f"{line}\n"))

    def _cell_parts(self, event: "events.Event") -> Iterator[StreamEvent]:
        from rlm import events

        if isinstance(event, events.CellStarted):
            self._printed = []
            name = _call_id(event.run_id, event.step, event.cell)
            code = replace_surrogates(cut(event.code, MAX_CODE_CHARS))
            yield _tool("tool_call_name", CELL_TOOL, name)
            yield _tool("tool_call_args", json.dumps({"code": code}), name)
        elif isinstance(event, events.CellOutput):
            self._printed.append(cut(event.text, MAX_OUTPUT_CHARS))
        elif isinstance(event, events.CellEnded):
            if event.error_type:
                self._printed.append(
                    event.traceback or f"{event.error_type}: {event.error_message}"
                )
            name = _call_id(event.run_id, event.step, event.cell)
            nothing = "(the answer was submitted)" if event.submitted else "(no output)"
            output = cut("\n".join(self._printed), MAX_OUTPUT_CHARS) or nothing
            yield _tool("tool_result", replace_surrogates(output), name)

    def _line(self, event: "events.Event") -> str:
        """Return a line of progress for an event, or an empty string."""
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
                return f"retrying in {event.wait_seconds:.1f} s: {_first_line(event.error)}"
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
    """Return what the model wrote before its code; the code has its own part."""
    prose = event.text.partition("```")[0].strip() or event.reasoning.strip()
    return cut(prose, MAX_PROSE_CHARS) or "code"


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} …"


# -- the answer ------------------------------------------------------------------------------------


def answer_parts(result: "RunResult | None", response: Any, prompt: Any) -> Iterator[StreamEvent]:
    """Return the answer as text, and set usage and facts of the run on the response."""
    assert result is not None, "a run ends with a result or an error"
    response.set_usage(**_usage(result))
    response.response_json = _facts(result)
    if result.answer is None:
        reason = result.detail or f"the run ended ({result.limit or result.stop_reason})"
        raise llm.ModelError(f"there is no answer: {reason}")
    text = _as_text(result, is_typed=bool(prompt.schema))
    yield StreamEvent(type="text", chunk=replace_surrogates(text))


def _as_text(result: "RunResult", *, is_typed: bool) -> str:
    return json.dumps(result.answer, ensure_ascii=False) if is_typed else str(result.answer)


def _facts(result: "RunResult") -> dict[str, Any]:
    facts = {
        "run_id": result.run_id,
        "stop_reason": result.stop_reason,
        "answer_source": result.answer_source,
        "limit": result.limit,
        "detail": result.detail,
        "steps": result.steps,
        "seconds": round(result.seconds, 3),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _usage(result: "RunResult") -> dict[str, Any]:
    """Return the tokens of the whole run; the details list those of steps and sub-calls."""
    from rlm import events
    from rlm.messages import Usage

    total, steps, sub_calls = result.usage.total, Usage(), Usage()
    for event in result.events:
        if isinstance(event, events.ModelReplied) and event.usage and not event.stored:
            if event.depth:
                sub_calls += event.usage
            else:
                steps += event.usage
        elif isinstance(event, events.CallEnded) and event.usage and not event.stored:
            sub_calls += event.usage
    details = {
        "steps": _counts(steps),
        "sub_calls": _counts(sub_calls),
        "models": {name: _counts(each) for name, each in result.usage.by_model.items()},
    }
    if result.cost_usd is not None:
        details["cost_usd"] = round(result.cost_usd, 6)
    return {"input": total.input_tokens, "output": total.output_tokens, "details": details}


def _counts(usage: "Usage") -> Any:
    return {
        "requests": usage.requests,
        "input": usage.input_tokens,
        "output": usage.output_tokens,
    }
