"""A run's session: opened, fed, watched by the clock, and replaced when its worker dies.

What a cell does wrong is a result. A dead worker becomes a result too: a fresh session takes over,
the context is attached again, and the model is told what was lost.
"""

import asyncio
import math
import time

from rlm.config import RunConfig
from rlm.errors import SessionError
from rlm.events import CellEnded, CellOutput, CellStarted, SessionLost
from rlm.prompts import nudges
from rlm.protocols import ContextSource, Environment, Host, Session, Tool
from rlm.results import CellError, CellResult
from rlm.scope import Scope

__all__ = ["RunSession"]

OVERTIME_SECONDS = 5.0
"""How long past the work deadline an interrupted cell may take to unwind before it is killed."""


class RunSession:
    """The one REPL of a run."""

    def __init__(
        self,
        environment: Environment,
        host: Host,
        scope: Scope,
        config: RunConfig,
        context: ContextSource,
        tools: tuple[Tool, ...] = (),
    ) -> None:
        self._environment = environment
        self._host = host
        self._scope = scope
        self._config = config
        self._context = context
        self._tools = tools
        self._session: Session | None = None

    @property
    def live(self) -> Session | None:
        return self._session

    @property
    def variables(self) -> tuple[str, ...]:
        return self._session.variables if self._session else ()

    async def open(self) -> None:
        limits = self._config.limits
        options = {
            "seed": self._config.seed,
            "tools": [{"name": t.name, "description": t.description} for t in self._tools],
            "kept_output_chars": limits.kept_output_chars,
            "cell_memory_bytes": limits.cell_memory_bytes,
        }
        self._session = await self._environment.open(self._host, options)
        await self._session.load("context", self._context)

    async def run(self, number: int, code: str) -> CellResult:
        """Execute one cell, telling every recorder what it did."""
        self._scope.emit(CellStarted, cell=number, code=code)
        started = time.monotonic()
        try:
            result = await self._execute(code)
        except SessionError as error:
            result = await self._recover(str(error), time.monotonic() - started)
        for stream, text, written in (
            ("stdout", result.stdout, result.stdout_chars),
            ("stderr", result.stderr, result.stderr_chars),
        ):
            if text:
                self._scope.emit(
                    CellOutput, cell=number, stream=stream, text=text, written_chars=written
                )
        failure = result.error
        self._scope.emit(
            CellEnded,
            cell=number,
            seconds=result.seconds,
            calls=result.calls,
            error_type=failure and failure.type,
            error_message=failure and failure.message,
            traceback=failure and failure.traceback,
            interrupted=result.interrupted,
            new_variables=result.new_variables,
            changed_variables=result.changed_variables,
            submitted=result.submission is not None,
        )
        return result

    async def lookup(self, name: str) -> str | None:
        """The text of a variable, or None if there is none of that name."""
        if self._session is None:
            return None
        try:
            return await self._session.fetch(name)
        except SessionError:
            return None  # the next cell finds the session dead and recovers

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _execute(self, code: str) -> CellResult:
        """Run a cell under its own limit and under the run's: at the deadline it is interrupted."""
        if self._session is None:
            raise SessionError("there was no session")
        session, limits = self._session, self._config.limits
        left = self._scope.budget.seconds_left
        if left == math.inf:
            return await session.execute(code, timeout_seconds=limits.cell_seconds)
        alarm = asyncio.create_task(_interrupt_later(session, left))
        try:
            async with asyncio.timeout(left + OVERTIME_SECONDS):
                return await session.execute(code, timeout_seconds=limits.cell_seconds)
        except TimeoutError as error:
            raise SessionError("the cell ran on past the time limit") from error
        finally:
            alarm.cancel()

    async def _recover(self, reason: str, seconds: float) -> CellResult:
        lost = self.variables
        await self.close()
        self._scope.emit(SessionLost, reason=reason, lost_variables=lost)
        await self.open()
        text = nudges.session_lost(reason, lost)
        return CellResult(error=CellError("SessionLost", reason, text), seconds=seconds)


async def _interrupt_later(session: Session, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await session.interrupt()
