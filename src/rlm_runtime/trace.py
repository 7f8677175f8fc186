"""What happened in a run, step by step, read from the engine's events."""

import hashlib
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from rlm import events
from rlm.messages import Usage

__all__ = ["Trace", "TraceStep"]

SUMMARY_CHARS = 240
Kind = Literal[
    "root_call", "repl_exec", "subcall", "recursive_subcall", "sub_root_call", "sub_repl_exec"
]


class TraceStep(Struct, kw_only=True, omit_defaults=True):
    """One request of the run itself, one cell, or one sub-call; `sub_`: inside a child run.

    Hashes are SHA-256 of prompt and reply, in hexadecimal.
    """

    step_id: int
    kind: Kind
    depth: int = 0
    prompt_summary: str | None = None
    code: str | None = None
    output: str | None = None
    error: str | None = None
    usage: Usage | None = None
    elapsed: float | None = None
    cache_hit: bool = False
    input_hash: str | None = None
    output_hash: str | None = None


class Trace(Struct):
    """All steps in the order in which they ended, and why the run ended."""

    steps: list[TraceStep] = field(default_factory=list)
    stop_reason: str = ""
    limit: str | None = None

    def to_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self).decode(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Trace":
        """Return a trace from its JSON, or from a list of steps; ValueError if it is neither."""
        read = msgspec.json.decode(text, type=Trace | list[TraceStep])
        return read if isinstance(read, Trace) else cls(read)

    @classmethod
    def of(cls, recorded: Iterable[events.Event]) -> "Trace":
        """Return the trace of a run tree from all its events. Only calls overlap."""
        trace = cls()
        begun: dict[str, Any] = {}
        printed: dict[str, str] = {}
        for event in recorded:
            if isinstance(event, events.CallStarted):
                begun[event.call_id] = event
            elif isinstance(event, events.ModelAsked | events.CellStarted):
                begun[event.run_id], printed[event.run_id] = event, ""
            elif isinstance(event, events.CellOutput):
                printed[event.run_id] += event.text
            elif isinstance(event, events.ModelReplied):
                asked = "".join(str(new.content) for new in begun[event.run_id].new_messages[-1:])
                trace._add("root_call", event, **_exchange(event, asked, event.text))
            elif isinstance(event, events.CellEnded):
                said = {"code": begun[event.run_id].code, "output": printed[event.run_id]}
                error = f"{event.error_type}: {event.error_message}" if event.error_type else None
                trace._add("repl_exec", event, **said, error=error)
            elif isinstance(event, events.CallEnded):
                kind = "subcall" if event.kind == "llm" else "recursive_subcall"
                trace._add(
                    kind, event, **_exchange(event, begun[event.call_id].prompt, event.reply)
                )
            elif isinstance(event, events.RunEnded) and event.parent_id is None:
                trace.stop_reason, trace.limit = event.stop_reason, event.limit
        return trace

    def _add(self, kind: str, event: Any, **said: Any) -> None:
        is_call = kind.endswith("subcall")
        said["kind"] = f"sub_{kind}" if event.depth and not is_call else kind
        said |= {"depth": event.depth + is_call, "elapsed": event.seconds}
        self.steps.append(TraceStep(step_id=len(self.steps) + 1, **said))


def _exchange(
    event: events.ModelReplied | events.CallEnded, prompt: str, reply: str
) -> dict[str, Any]:
    return {
        "prompt_summary": prompt[:SUMMARY_CHARS],
        "output": reply,
        "error": event.error,
        "usage": event.usage,
        "cache_hit": event.stored,
        "input_hash": hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest(),
        "output_hash": hashlib.sha256(reply.encode("utf-8", "surrogatepass")).hexdigest(),
    }
