"""Answers what code in the toolbox's sandbox asks: `llm_query` and `llm_batch`, by llm's models.

The code is not trusted. Keys stay here, and so does the choice of the model; there is an end to the
number of calls, and to how many are under way at a time.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from rlm.clients.llm import LLMClient
from rlm.errors import CallRefused, ModelError
from rlm.messages import Message, Request

__all__ = ["MOST_CALLS", "ModelHost"]

MOST_CALLS = 1_000
MOST_AT_ONCE = 16
OUTPUT_TOKENS = 4_096
CALL_SECONDS = 600.0
SYSTEM = "You are a sub-LLM. Answer from the text in the prompt, briefly and exactly."


class ModelHost:
    """The Host of one toolbox's sessions."""

    def __init__(self, model: str, *, most_calls: int = MOST_CALLS) -> None:
        self._model = model
        self._left = most_calls
        self._most = most_calls
        self._client: LLMClient | None = None
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        """One question in, meta and texts out; a failed item of a batch loses no other."""
        if kind == "budget":
            return {"calls": self._left, "tokens": None, "cost_usd": None, "seconds": None}, ()
        if kind != "llm":
            raise CallRefused("only llm_query and llm_batch can be called from here", limit="kind")
        if arguments.get("images"):
            raise CallRefused("pictures can't be sent from here; describe them", limit="kind")
        if arguments.get("model") not in (None, "", self._model):
            raise CallRefused(f"the only model here is {self._model!r}", limit="models")
        room = min(len(parts), self._left)
        self._left -= room
        replies = await asyncio.gather(*map(self._ask, parts[:room]), return_exceptions=True)
        failed: dict[str, str] = {}
        texts: list[str] = []
        for index, reply in enumerate(replies):
            if isinstance(reply, BaseException) and not isinstance(reply, ModelError):
                raise reply
            texts.append(reply if isinstance(reply, str) else "")
            if not isinstance(reply, str):
                failed[str(index)] = str(reply)
        for index in range(room, len(parts)):
            failed[str(index)] = f"all {self._most:,} calls of this toolbox are used"
            texts.append("")
        return {"failed": failed}, texts

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _ask(self, prompt: str) -> str:
        if self._client is None:
            self._client = LLMClient.for_model(self._model)
        request = Request(
            model=self._model,
            messages=(Message("system", SYSTEM), Message("user", prompt)),
            max_output_tokens=OUTPUT_TOKENS,
        )
        async with self._places:
            reply = await self._client.complete(request, timeout_seconds=CALL_SECONDS)
        return reply.text
