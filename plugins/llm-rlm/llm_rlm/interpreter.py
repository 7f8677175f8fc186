"""The one session of a toolbox: opened when it is needed, replaced if it dies, closed at the end.

Everything here runs on the engine's thread.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from llm_rlm.host import ModelHost
from rlm.context import StoredContext
from rlm.engine.sessions import FRESH_ANSWER
from rlm.errors import SessionError, SessionRestored
from rlm.protocols import Environment, Session
from rlm.results import CellResult
from rlm.wiring.registry import make_environment

__all__ = ["Interpreter", "Outcome"]

KEPT_CHARS = 1_000_000
MEMORY_BYTES = 2 << 30
OPTIONS = {"warm_sessions": 0}
"""One toolbox needs one session, so none is kept ready."""


@dataclass(frozen=True)
class Outcome:
    """What came of some code: a result, or why the interpreter ended."""

    result: CellResult | None
    problem: str = ""


class Interpreter:
    """Runs code, one piece after the other; variables stay."""

    def __init__(self, sandbox: str, context: StoredContext, host: ModelHost, seconds: float):
        self._sandbox = sandbox
        self._context = context
        self._host = host
        self._seconds = seconds
        self._environment: Environment | None = None
        self._session: Session | None = None
        self._turn = asyncio.Lock()
        self._is_closed = False

    async def open(self) -> None:
        """Have a session with the context in it; nothing happens if there is one."""
        async with self._turn:
            await self._opened()

    async def run(self, code: str) -> Outcome:
        """Execute some code. What it does wrong is a result; its interpreter's end is a problem."""
        async with self._turn:
            session = await self._opened()
            try:
                result = await session.execute(code, timeout_seconds=self._seconds)
                if result.submission is not None:  # Else the next code would hand it in again.
                    await session.load("answer", FRESH_ANSWER)
                return Outcome(result)
            except SessionRestored as error:
                lost = ", ".join(error.lost_variables) or "none"
                return Outcome(None, f"{error}. The code was undone; variables lost: {lost}")
            except SessionError as error:
                await self._drop()
                again = "All variables are gone; `context` is there again."
                return Outcome(None, f"the interpreter ended: {error}. {again}")
            except asyncio.CancelledError:
                await self._drop()
                raise

    async def fetch(self, name: str) -> str | None:
        """The text of a variable; None if there is none of that name."""
        async with self._turn:
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
            raise SessionError("this toolbox is closed; make another")
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
