"""The session of a toolbox, and the host that serves its model calls.

Everything here runs on the engine's thread.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlm.clients.llm import LLMClient
from rlm.context import StoredContext
from rlm.engine.repl_values import FRESH_ANSWER
from rlm.errors import CallRefused, ModelError, SessionError, SessionRestored
from rlm.messages import Message, Request
from rlm.protocols import Environment, Session
from rlm.results import CellResult
from rlm.wiring.registry import make_environment

__all__ = ["MAX_CALLS", "Interpreter", "ModelHost", "Outcome"]

KEPT_CHARS = 1_000_000
MEMORY_BYTES = 2 << 30
OPTIONS = {"warm_sessions": 0}
"""A toolbox needs only one session, so no further one is kept ready."""

MAX_CALLS = 1_000
MAX_CONCURRENT_CALLS = 16
OUTPUT_TOKENS = 4_096
CALL_SECONDS = 600.0
SYSTEM = "You are a sub-LLM. Answer from the text in the prompt, briefly and exactly."


class ModelHost:
    """The host of a toolbox's sessions, which serves `llm_query` and `llm_batch`.

    The code in the sandbox is not trusted. Keys stay here, and so does the choice of the model; the
    number of calls, in total and at once, is limited.
    """

    def __init__(self, model: str, *, max_calls: int = MAX_CALLS) -> None:
        self._model = model
        self._left = max_calls
        self._max = max_calls
        self._client: LLMClient | None = None
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        """Answer one request of the sandbox; a failed item of a batch affects no other."""
        if kind == "budget":
            return {"calls": self._left, "tokens": None, "cost_usd": None, "seconds": None}, ()
        if kind != "llm":
            raise CallRefused("only llm_query and llm_batch can be called from here", limit="kind")
        if arguments.get("images"):
            raise CallRefused("pictures cannot be sent from here; describe them", limit="kind")
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
            failed[str(index)] = f"all {self._max:,} calls of this toolbox are used"
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
        async with self._slots:
            reply = await self._client.complete(request, timeout_seconds=CALL_SECONDS)
        return reply.text


@dataclass(frozen=True)
class Outcome:
    """The result of some code, or why the interpreter ended."""

    result: CellResult | None
    problem: str = ""


class Interpreter:
    """A session that runs code, one piece at a time; variables persist.

    It is opened when it is needed and replaced if it dies.
    """

    def __init__(self, sandbox: str, context: StoredContext, host: ModelHost, seconds: float):
        self._sandbox = sandbox
        self._context = context
        self._host = host
        self._seconds = seconds
        self._environment: Environment | None = None
        self._session: Session | None = None
        self._lock = asyncio.Lock()
        self._is_closed = False

    async def open(self) -> None:
        """Open a session with the context in it, unless one is open."""
        async with self._lock:
            await self._opened()

    async def run(self, code: str, context: StoredContext | None = None) -> Outcome:
        """Execute some code; an exception in it is a result, a dead interpreter a problem.

        `context` replaces the current one, also for later sessions.
        """
        async with self._lock:
            self._context = context or self._context
            session = await self._opened()
            try:
                if context is not None:
                    await session.load("context", context)
                result = await session.execute(code, timeout_seconds=self._seconds)
                if result.submission is not None:  # Otherwise the next code would submit it again.
                    await session.load("answer", FRESH_ANSWER)
                return Outcome(result)
            except SessionRestored as error:
                lost = ", ".join(error.lost_variables) or "none"
                return Outcome(None, f"{error}. The code was undone; variables lost: {lost}")
            except SessionError as error:
                await self._drop()
                again = "All variables are lost; `context` has been loaded again."
                return Outcome(None, f"the interpreter ended: {error}. {again}")
            except asyncio.CancelledError:
                await self._drop()
                raise

    async def fetch(self, name: str) -> str | None:
        """Return the text of a variable, or None if there is no such variable."""
        async with self._lock:
            try:
                return await (await self._opened()).fetch(name)
            except SessionError:
                await self._drop()
                return None

    async def close(self) -> None:
        """End the session and its process; may be called twice."""
        self._is_closed = True
        await self._drop()
        await self._host.close()
        if self._environment is not None:
            await self._environment.close()

    async def _opened(self) -> Session:
        if self._is_closed:
            raise SessionError("this toolbox is closed; create another")
        if self._session is None:
            if self._environment is None:
                self._environment = make_environment(self._sandbox, OPTIONS)
            options: dict[str, Any] = {
                "kept_output_chars": KEPT_CHARS,
                "cell_memory_bytes": MEMORY_BYTES,
            }
            self._session = await self._environment.open(self._host, options)
            await self._session.load("context", self._context)
        return self._session

    async def _drop(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()
