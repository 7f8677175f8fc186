"""A run's conversation with its model. Append-only, so that provider prompt caches hit.

Only compaction rewrites it: near the window the model writes notes and goes on from them.
"""

from rlm import prompts
from rlm.calls.billing import worst_case
from rlm.calls.calls import Calls
from rlm.calls.scope import Scope
from rlm.config import RunConfig
from rlm.events import Compacted
from rlm.messages import Message, Reply, Request, followed_by

__all__ = ["History"]

FEWEST_MESSAGES_TO_COMPACT = 6
"""The standing instructions, the task and two turns: less is not worth shortening."""

LEAST_OUTPUT_TOKENS = 1_024
"""A step that can't write this much is hardly worth its input."""


class History:
    """The messages so far, and how to ask for the next one."""

    def __init__(self, calls: Calls, scope: Scope, config: RunConfig) -> None:
        self._calls = calls
        self._scope = scope
        self._config = config
        self._logged = 0
        self._chars = 0
        self.messages: list[Message] = []

    async def open(self, system: str, first: str) -> None:
        """Begin; a run that goes on begins with the very words it began with."""
        system = await self._scope.tell("system", system)
        first = await self._scope.tell("task", first)
        self.messages = [Message("system", system), Message("user", first)]
        self._chars = _chars(self.messages)

    def append(self, reply: Reply, answer: str) -> None:
        """What the model wrote and what came of it."""
        new = _exchange(reply, answer)
        self.messages += new
        self._chars += _chars(new)

    def has_room_for(self, reply: Reply, answer: str) -> bool:
        """Whether the budget allows another step after this answer."""
        budget = self._scope.budget
        if not budget.is_limited:
            return True
        messages = (*self.messages, *_exchange(reply, answer))
        request = self._request(messages, LEAST_OUTPUT_TOKENS)
        info = self._calls.info(self._config.model)
        need, room = worst_case(request, info, self._scope.reported), budget.room()
        return need.tokens <= room.tokens and need.picodollars <= room.picodollars

    async def ask(self, variables: tuple[str, ...]) -> Reply:
        """The next reply. An empty one that was cut off by its cap gets one try with more room."""
        if self._is_near_window():
            await self._compact(variables)
        cap = self._config.limits.step_output_tokens
        reply = await self._step(cap)
        if reply.finish_reason == "length" and not reply.text.strip() and not reply.tool_calls:
            reply = await self._step(2 * cap)
        return reply

    async def _step(self, max_output_tokens: int) -> Reply:
        fresh = len(self.messages) - self._logged
        self._logged = len(self.messages)
        request = self._request(tuple(self.messages), max_output_tokens)
        return await self._calls.ask(self._scope, request, purpose="step", new_messages=fresh)

    def _request(self, messages: tuple[Message, ...], max_output_tokens: int) -> Request:
        native = self._config.protocol == "tools"
        return Request(
            model=self._config.model,
            messages=messages,
            max_output_tokens=max_output_tokens,
            sampling=self._config.sampling,
            tools=prompts.NATIVE_TOOLS if native else (),
            grows=True,
        )

    def _is_near_window(self) -> bool:
        if not self._config.compaction or len(self.messages) < FEWEST_MESSAGES_TO_COMPACT:
            return False
        window = prompts.call_chars(self._calls.info(self._config.model))
        return self._chars > self._config.compaction_fraction * window

    async def _compact(self, variables: tuple[str, ...]) -> None:
        """Instructions and task as they were, then the model's own notes in place of the rest."""
        messages = followed_by(self.messages, prompts.compact())
        request = self._request(messages, self._config.limits.step_output_tokens)
        reply = await self._calls.ask(self._scope, request, purpose="compaction", new_messages=1)
        notes = Message("assistant", reply.text or "(no notes)")
        told = await self._scope.tell("compaction", prompts.compacted(variables))
        shortened = [*self.messages[:2], notes, Message("user", told)]
        self._scope.emit(
            Compacted,
            messages_before=len(self.messages),
            messages_after=len(shortened),
            chars_before=self._chars,
            chars_after=_chars(shortened),
        )
        self.messages, self._logged, self._chars = shortened, 0, _chars(shortened)


def _exchange(reply: Reply, answer: str) -> list[Message]:
    """A reply and its answer as messages; every native tool call gets an answer."""
    said = Message("assistant", reply.text, tool_calls=reply.tool_calls, opaque=reply.opaque)
    new = [said] if reply.tool_calls else [said, Message("user", answer)]
    for number, call in enumerate(reply.tool_calls):
        text = "(see the first result)" if number else answer
        new.append(Message("tool", text, tool_call_id=call.id))
    return new


def _chars(messages: list[Message]) -> int:
    return sum(len(m.content) for m in messages if isinstance(m.content, str))
