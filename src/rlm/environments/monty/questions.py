"""What cells in monty ask: held as the same dialogues, and checked by the same rules, as elsewhere.

The dialogues of `rlm.worker.calls` run here, on the host's side: they turn arguments into frames
and answers into values, so that every spelling and every error is that of the other environments.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any

from rlm.environments import _frames
from rlm.environments.monty.values import received, sent
from rlm.errors import ProtocolViolation
from rlm.protocols import Host
from rlm.results import Submission
from rlm.worker import calls, wire
from rlm.worker.keywords import parameters, renamed
from rlm.worker.namespace import REPL_NAMES
from rlm.worker.replies import FailedReply
from rlm.worker.votes import vote

__all__ = ["AWAITABLE", "Questions"]

Dialogue = Generator[list[bytes], wire.Frame, Any]

_DIALOGUES: dict[str, Callable[..., Dialogue]] = {
    each.__name__: each
    for each in (
        calls.llm_query,
        calls.llm_query_batched,
        calls.rlm_query,
        calls.rlm_query_batched,
        calls.llm_query_json,
        calls.map_query,
        calls.call_tool,
        calls.budget,
    )
}
AWAITABLE = frozenset({*_DIALOGUES, "llm_batch"})
_BATCHES = frozenset({"llm_query_batched", "rlm_query_batched", "map_query"})
_PLAIN = {"vote": vote}
_HOWS = frozenset({"FINAL", "FINAL_VAR", "SUBMIT", "submit_answer"})
_PUBLISHED = frozenset(entry.name for entry in REPL_NAMES)
_ASK = "_rlm_ask"


class Questions:
    """Answers one session; what it counts, and `submission`, are about the cell that runs."""

    def __init__(self, host: Host, tools: Sequence[dict[str, str]]) -> None:
        self._host = host
        names = [tool["name"] for tool in tools]
        self.tools = frozenset(n for n in names if n.isidentifier() and n not in _PUBLISHED)
        self.start_over()

    def start_over(self) -> None:
        """A new cell begins."""
        self.prompts = 0
        self.asked = 0
        self.failed = 0
        self.submission: Submission | None = None

    def functions(self) -> list[str]:
        """The names of functions that end up here; each has an async form as well."""
        return [*sorted({*_DIALOGUES, *self.tools} - _BATCHES), *_PLAIN, _ASK]

    async def answer(self, name: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        """The value of a call, in a form monty takes; what it raises is raised in the cell."""
        arguments, named = received(list(arguments)), received(named)
        if name == _ASK:
            name, arguments, named = arguments
        if name == "hand in":
            return self._hand_in(arguments)
        if name in _PLAIN:
            return sent(_PLAIN[name](*arguments, **named))
        if name in self.tools:
            name, arguments = "call_tool", [name, *arguments]
        dialogues = _DIALOGUES.get(name)
        if dialogues is None:
            raise NameError(f"name {name!r} is not defined")
        named = renamed(named, parameters(dialogues))
        value = await self._held(dialogues(*arguments, **named))
        return _batch(value) if name in _BATCHES else sent(value)

    def _hand_in(self, given: Any) -> None:
        text, how, as_json = given
        if not isinstance(text, str) or how not in _HOWS or not isinstance(as_json, str | None):
            raise ProtocolViolation("an answer was handed in with the wrong parts")
        self.submission = Submission(text, how, as_json)

    async def _held(self, dialogue: Dialogue) -> Any:
        """Hold a dialogue to its end."""
        try:
            parts = next(dialogue)
            while True:
                parts = dialogue.send(await self._answered(parts))
        except StopIteration as end:
            return end.value

    async def _answered(self, parts: list[bytes]) -> wire.Frame:
        size = sum(map(len, parts))
        if size > wire.MAX_TO_HOST_BYTES:
            raise ValueError(
                f"a call of {size:,} bytes is over the limit of {wire.MAX_TO_HOST_BYTES:,}"
            )
        call = _frames.read_call(wire.Frame(wire.CALL, 1, parts))
        self.prompts += call.prompts
        self.asked += 1
        answering = asyncio.ensure_future(self._host.answer(call.kind, call.arguments, call.parts))
        try:
            await asyncio.wait({answering})
        finally:
            answering.cancel()
        error = answering.exception()
        if error is not None:
            self.failed += 1
            meta: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
            return wire.Frame(wire.ANSWER_ERROR, 1, [wire.to_json(meta)])
        meta, texts = answering.result()
        self.failed += 0 < len(texts) == len(meta.get("failed", ()))
        return wire.Frame(
            wire.ANSWER, 1, [wire.to_json(meta), *[wire.to_bytes(text) for text in texts]]
        )


def _batch(replies: list[Any]) -> list[Any]:
    """Texts; in the place of a failed one a list of its reason, which becomes a FailedReply."""
    return [
        [sent(each.reason)] if isinstance(each, FailedReply) else sent(each) for each in replies
    ]
