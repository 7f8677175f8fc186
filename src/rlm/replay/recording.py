"""A recorded trajectory, indexed: replies by request, results by call."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from msgspec import Struct, field

from rlm.errors import ConfigError
from rlm.events import (
    MAX_RESULT_CHARS,
    CallEnded,
    CallStarted,
    Event,
    ModelAsked,
    ModelReplied,
    RunStarted,
    ToolCalled,
)
from rlm.messages import Message, Reply, Usage

__all__ = ["Ask", "RecordedRun", "Recording"]


class Ask(Struct):
    """One request of the run itself, and its reply."""

    asked: ModelAsked
    reply: Reply | None = None


class RecordedRun(Struct):
    """One run of the tree, in its last execution.

    `is_resumed`: an earlier execution began it, so the first texts that the model was shown were
    written under the limits of that one. `is_earlier`: all of them were, because the last execution
    of the tree only took over its answer.
    """

    started: RunStarted
    asks: list[Ask] = field(default_factory=list)
    calls: dict[str, CallStarted] = field(default_factory=dict)
    stored_steps: set[int] = field(default_factory=set)
    is_resumed: bool = False
    is_earlier: bool = False

    def opening(self, role: str) -> str | None:
        """Return the text of the first message with this role."""
        messages = self.asks[0].asked.new_messages if self.asks else ()
        return next((_text(message) for message in messages if message.role == role), None)

    def was_over(self, step: int) -> bool:
        """Return whether an earlier execution has surely shown the model the outcome of a step."""
        return self.is_earlier or step + 1 in self.stored_steps

    def shown_after(self, step: int) -> Iterator[str]:
        """Yield texts of the next request that may follow a step, the most likely first."""
        for ask in self.asks:
            if ask.asked.step > step or (ask.asked.step == step and ask.asked.purpose == "final"):
                yield from (_text(m) for m in ask.asked.new_messages if m.role in ("user", "tool"))
                return


class Recording:
    """All runs of one tree, by their paths."""

    def __init__(self, events: Iterable[Event], resumed: Collection[str] = ()) -> None:
        """`resumed` are the ids of runs that an earlier execution began."""
        self.runs: dict[str, RecordedRun] = {}
        self.results: dict[str, Reply] = {}
        self.root: RunStarted | None = None
        self._paths: dict[str, str] = {}
        for event in events:
            self._add(event)
        if self.root is None:
            raise ConfigError("there is no run in this recording; pass a log or a journal of rlm")
        for run in self.runs.values():
            run.is_earlier = run.started.wall_time < self.root.wall_time
            known = run.started.run_id in resumed or bool(run.stored_steps)
            run.is_resumed = known or run.is_earlier

    def _add(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._paths[event.run_id] = event.path
            self.runs[event.path] = RecordedRun(event)
            if event.depth == 0:
                self.root = event
        run = self.runs.get(self._paths.get(event.run_id, ""))
        if run is None:
            return
        if isinstance(event, ModelAsked):
            run.asks.append(Ask(event))
        elif isinstance(event, ModelReplied) and run.asks:
            run.asks[-1].reply = _reply_of(event, event.text, event.usage)
            if event.stored and event.purpose == "step":
                run.stored_steps.add(event.step)
        elif isinstance(event, CallStarted):
            run.calls[event.call_id] = event
        elif isinstance(event, CallEnded) and event.kind == "llm":
            self.results[event.call_id] = _reply_of(event, event.reply, event.usage)
        elif isinstance(event, ToolCalled):
            self.results[event.call_id] = _result_of(event)

    def opaque_parts(self) -> dict[str, dict[int, Any]]:
        """Return the opaque parts of a reply, which are in the request after it."""
        found: dict[str, dict[int, Any]] = defaultdict(dict)
        for path, run in self.runs.items():
            for number, ask in enumerate(run.asks[1:]):
                for message in ask.asked.new_messages:
                    if message.role == "assistant" and message.opaque is not None:
                        found[path][number] = message.opaque
        return found

    def replies_of(self, path: str) -> Iterator[tuple[str, int, Reply | None]]:
        """Yield the replies to the requests of a run: hash, number among equals, reply."""
        seen: Counter[str] = Counter()
        opaque = self.opaque_parts().get(path, {})
        for index, ask in enumerate(self.runs[path].asks):
            digest = ask.asked.digest
            reply = ask.reply
            if reply is not None and index in opaque:
                reply = Reply(
                    text=reply.text,
                    tool_calls=reply.tool_calls,
                    reasoning=reply.reasoning,
                    usage=reply.usage,
                    finish_reason=reply.finish_reason,
                    opaque=opaque[index],
                )
            yield digest, seen[digest], reply
            seen[digest] += 1


def _result_of(event: ToolCalled) -> Reply:
    """Return the result of a tool; an error if it was too long to be recorded."""
    if len(event.result) > MAX_RESULT_CHARS:
        try:
            json.loads(event.result)
        except ValueError:
            text = f"the result of {event.name} was too long for a log; replay the run's journal"
            return Reply(text=text, finish_reason="failed")
    return _reply_of(event, event.result, None)


def _reply_of(event: Any, text: str, usage: Usage | None) -> Reply:
    if event.error is not None:
        limit = getattr(event, "limit", None)
        opaque = None if limit is None else {"limit": limit}
        return Reply(text=event.error, finish_reason="failed", opaque=opaque)
    return Reply(
        text=text,
        tool_calls=getattr(event, "tool_calls", ()),
        reasoning=getattr(event, "reasoning", ""),
        usage=usage,
        finish_reason=getattr(event, "finish_reason", "stop"),
    )


def _text(message: Message) -> str:
    return message.content if isinstance(message.content, str) else repr(message.content)
