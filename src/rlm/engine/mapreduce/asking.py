"""Ask the sub-model many questions concurrently."""

import asyncio
from collections.abc import Sequence

from rlm._util.text import counted
from rlm.calls.calls import Calls
from rlm.calls.scope import Scope
from rlm.config import RunConfig
from rlm.engine.plain_replies import read_submission
from rlm.engine.task import Task
from rlm.errors import CallRefused, RLMError
from rlm.events import Planned
from rlm.messages import Message, Reply, Request
from rlm.prompts import nudges

__all__ = ["Asker", "whole_query"]


class Asker:
    """Asks the sub-model of one run."""

    def __init__(self, calls: Calls, task: Task, scope: Scope, config: RunConfig) -> None:
        self.task, self.config, self.scope = task, config, scope
        self.info = calls.info(config.sub_model)
        self.profile = config.profile or self.info.profile
        self._calls = calls

    def check_room(self, pieces: int) -> None:
        """Refuse, before anything is paid for, if too few calls are left."""
        room = self.scope.budget.room().calls
        if pieces >= room:
            raise CallRefused(
                f"map/reduce needs {counted(pieces, 'call')} and one more; "
                f"left: {room:,} (max_calls)",
                limit="calls",
            )

    def report_plan(self, kind: str, pieces: int, piece_chars: int, unread: int = 0) -> None:
        self.scope.emit(
            Planned,
            strategy="mapreduce",
            reason=f"the kind of answer is {kind!r}",
            kind=kind,
            pieces=pieces,
            piece_chars=piece_chars,
            unread=unread,
        )

    async def ask(self, question: str, output_tokens: int | None = None) -> str:
        (reply,) = await self.replies([question], output_tokens)
        return reply

    async def replies(
        self,
        questions: Sequence[str],
        output_tokens: int | None = None,
        at_once: int | None = None,
    ) -> list[str]:
        """Return a reply to each question, "" for a failed call; raise if every call failed."""
        cap = self.config.limits.call_output_tokens
        slots = asyncio.Semaphore(at_once or max(1, len(questions)))

        async def ask(question: str) -> str:
            messages: tuple[Message, ...] = (Message("user", question),)
            async with slots:
                reply = await self._reply(messages, min(cap, output_tokens or cap))
                plain = read_submission(reply)
                if plain.is_code:  # `FINAL_VAR(x)`: there is no REPL here
                    said = Message("assistant", reply.text)
                    messages = (*messages, said, Message("user", nudges.NO_CODE_NOW))
                    reply = await self._reply(messages, min(cap, output_tokens or cap))
                    plain = read_submission(reply)
            return "" if plain.is_code else plain.text

        replies = await asyncio.gather(*map(ask, questions), return_exceptions=True)
        failed = [reply for reply in replies if isinstance(reply, BaseException)]
        for error in failed:
            if not isinstance(error, RLMError) or len(failed) == len(replies):
                raise error
        return [reply if isinstance(reply, str) else "" for reply in replies]

    async def _reply(self, messages: tuple[Message, ...], output_tokens: int) -> Reply:
        request = Request(
            model=self.config.sub_model,
            messages=messages,
            max_output_tokens=output_tokens,
            sampling=self.config.sub_sampling,
        )
        return await self._calls.counted_call(self.scope, request)


def whole_query(task: Task) -> str:
    """Return the query with the required form of the answer, for the last call."""
    return "\n\n".join(filter(None, [task.query, task.prologue]))
