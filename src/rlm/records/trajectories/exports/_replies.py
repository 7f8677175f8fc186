"""What can be learned from runs: each reply once, with the messages that it answers."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from rlm.events import (
    MAX_PROMPT_CHARS,
    CallEnded,
    CallStarted,
    Event,
    ModelAsked,
    ModelReplied,
)
from rlm.messages import Message
from rlm.records.trajectories.exports._texts import json_of
from rlm.records.trajectories.index import RunOutline

__all__ = ["Conversation", "Once", "Taught", "finished", "plain_calls", "replies"]

MAX_OPEN_CALLS = 10_000
"""The most open calls of one run; a log may claim any number."""

MAX_REMEMBERED = 2_000_000
"""How many rows `Once` remembers, in about 200 MB."""


class Taught(Struct, frozen=True):
    """A reply and what it answers. `kind`: the run's own, or that of a plain call from its code."""

    kind: Literal["step", "call"]
    run: RunOutline
    step: int
    purpose: str
    model: str
    prompt: list[Message]
    reply: Message
    finish_reason: str = "stop"
    reasoning: str = ""


class Conversation:
    """The messages of one run; a log contains only what each request added."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._sent = 0

    def ask(self, event: ModelAsked) -> list[Message]:
        """Add a request. Return the previous messages if this one does not continue them.

        That happens after a compaction, and for requests that stand alone.
        """
        base = max(0, event.message_count - len(event.new_messages))
        before = self.messages
        self.messages = [*before[:base], *event.new_messages]
        goes_on = before[: self._sent] == self.messages[: self._sent]
        self._sent = len(self.messages)
        return [] if goes_on else finished(before)

    def reply(self, event: ModelReplied) -> None:
        """Add a reply. If the model was then asked again, the next request leaves it out."""
        if event.error is None:
            self.messages.append(
                Message("assistant", event.text, tool_calls=tuple(event.tool_calls))
            )


def finished(messages: list[Message]) -> list[Message]:
    """Return the conversation up to its last reply; empty if there was none."""
    last = max((at for at, each in enumerate(messages) if each.role == "assistant"), default=-1)
    return messages[: last + 1]


def replies(run: RunOutline, events: Iterable[Event]) -> Iterator[Taught]:
    """Yield the replies of a run and of its plain calls; empty and failed ones are left out."""
    conversation, calls = Conversation(), _Calls(run)
    for event in events:
        if isinstance(event, ModelAsked):
            conversation.ask(event)
        elif isinstance(event, ModelReplied):
            if event.error is None and (event.text.strip() or event.tool_calls):
                yield Taught(
                    kind="step",
                    run=run,
                    step=event.step,
                    purpose=event.purpose,
                    model=event.model,
                    prompt=list(conversation.messages),
                    reply=Message("assistant", event.text, tool_calls=tuple(event.tool_calls)),
                    finish_reason=event.finish_reason,
                    reasoning=event.reasoning,
                )
            conversation.reply(event)
        else:
            yield from calls.after(event)


def plain_calls(run: RunOutline, events: Iterable[Event]) -> Iterator[Taught]:
    """Yield only the replies to plain calls."""
    calls = _Calls(run)
    for event in events:
        yield from calls.after(event)


class _Calls:
    """Pairs the starts and ends of plain calls. Child runs have their own rows.

    A prompt longer than `MAX_PROMPT_CHARS` was cut in the log, so no model was asked what is left.
    """

    def __init__(self, run: RunOutline) -> None:
        self._run = run
        self._prompts: OrderedDict[str, str] = OrderedDict()

    def after(self, event: Event) -> Iterator[Taught]:
        if isinstance(event, CallStarted) and event.kind == "llm":
            if len(event.prompt) <= MAX_PROMPT_CHARS:
                self._prompts[event.call_id] = event.prompt
            if len(self._prompts) > MAX_OPEN_CALLS:
                self._prompts.popitem(last=False)
        elif isinstance(event, CallEnded):
            prompt = self._prompts.pop(event.call_id, None)
            if prompt is not None and event.error is None and event.reply.strip():
                yield Taught(
                    kind="call",
                    run=self._run,
                    step=event.step,
                    purpose="call",
                    model=event.model,
                    prompt=[Message("user", prompt)],
                    reply=Message("assistant", event.reply),
                )


class Once:
    """Recognizes repeated rows by their messages: what was seen before teaches nothing new."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def is_new(self, *messages: object) -> bool:
        """Return whether these messages are new, and remember them."""
        digest = hashlib.sha256(json_of(messages).encode("utf-8", "surrogatepass")).digest()[:16]
        if digest in self._seen:
            return False
        if len(self._seen) < MAX_REMEMBERED:
            self._seen.add(digest)
        return True
