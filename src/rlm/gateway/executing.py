"""Code of clients, in the sandbox, over files that they have handles for.

A session has one interpreter, so that a client can work step by step: variables stay. It is opened
when it is first needed and ends with the session, with its worker, or when too many are open.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from rlm.context import store_context
from rlm.environments.local import LocalEnvironment
from rlm.errors import CallRefused, SessionError
from rlm.gateway.detached import Detached
from rlm.gateway.spans import MOST_BYTES
from rlm.gateway.turns import Turns
from rlm.limited import in_thread
from rlm.protocols import Environment, Session
from rlm.results import CellResult

__all__ = ["Executed", "Executor"]

MOST_INTERPRETERS = 16
MOST_AT_ONCE_EACH = 4
KEPT_CHARS = 20_000
MEMORY_BYTES = 1 << 30
_FOLDERS = re.compile(r'(?<=File ")/(?:[^"\n]*/)?')


class Executed:
    """What came of some code. `fresh`: the interpreter is new, and earlier variables are gone."""

    def __init__(self, result: CellResult | None, problem: str, *, fresh: bool) -> None:
        self.fresh = fresh
        self.output, self.cut = "", False
        self.error: str | None = problem or None
        if result is not None:
            self._take(result)

    def _take(self, result: CellResult) -> None:
        submitted = result.submission.text if result.submission else ""
        printed = "\n".join(filter(None, (result.stdout, result.stderr, submitted)))
        told = "" if result.error is None else result.error.traceback or result.error.message
        if result.error is not None and result.error.type not in told:
            told = f"{told.rstrip()}\n{result.error.type}: {result.error.message}".lstrip()
        error, self.cut = _bounded(_FOLDERS.sub("", told), MOST_BYTES // 4)
        self.error = error or None
        room = MOST_BYTES - len(error.encode())
        self.output, cut = _bounded(printed, room)
        written = result.stdout_chars + result.stderr_chars
        self.cut |= cut or written > len(result.stdout) + len(result.stderr)

    @property
    def size_bytes(self) -> int:
        return len(self.output.encode()) + len((self.error or "").encode())


class _Interpreter:
    """One session of the sandbox; code runs in it one after the other."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.turn = asyncio.Lock()


class _Nobody:
    """Answers what code asks of its host: there are no models and no tools."""

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        raise CallRefused("code of rlm_exec has no models and no tools", limit="kind")


class Executor:
    """Interpreters by the id of a gateway session."""

    def __init__(self, *, seconds: float = 30.0, environment: Environment | None = None) -> None:
        self._seconds = seconds
        self._environment = environment or LocalEnvironment(warm_sessions=0)
        self._open: OrderedDict[str, _Interpreter] = OrderedDict()
        self._opening = asyncio.Lock()
        self._turns = Turns(MOST_AT_ONCE_EACH)
        self._detached = Detached()

    async def run(
        self, owner: str, code: str, files: dict[str, str] | None, principal: str = ""
    ) -> Executed:
        """Execute code with `files` bound; None leaves those of the time before."""
        return await self._detached.run(self._in_turn(principal, owner, code, files))

    async def end(self, owner: str) -> None:
        """Close a session's interpreter, if it has one."""
        if (found := self._open.pop(owner, None)) is not None:
            await found.session.close()

    async def close(self) -> None:
        await self._detached.close()
        for owner in list(self._open):
            await self.end(owner)
        await self._environment.close()

    def end_soon(self, owner: str) -> None:
        """The same as `end`, for those who can't wait."""
        if owner in self._open:
            self._detached.start(self.end(owner))

    async def _in_turn(
        self, principal: str, owner: str, code: str, files: dict[str, str] | None
    ) -> Executed:
        async with self._turns.of(principal):
            return await self._run(owner, code, files)

    async def _run(self, owner: str, code: str, files: dict[str, str] | None) -> Executed:
        stored = None if files is None else await in_thread(store_context, files)
        interpreter, fresh = await self._interpreter(owner)
        try:
            async with interpreter.turn:
                if stored is not None:
                    await interpreter.session.load("files", stored)
                result = await interpreter.session.execute(code, timeout_seconds=self._seconds)
                return Executed(result, "", fresh=fresh)
        except SessionError as error:
            await self._drop(owner, interpreter)
            return Executed(None, f"the interpreter ended: {error}", fresh=fresh)
        except asyncio.CancelledError:
            await self._drop(owner, interpreter)
            raise

    async def _drop(self, owner: str, interpreter: _Interpreter) -> None:
        if self._open.get(owner) is interpreter:
            del self._open[owner]
        await interpreter.session.close()

    async def _interpreter(self, owner: str) -> tuple[_Interpreter, bool]:
        async with self._opening:
            if (found := self._open.get(owner)) is not None:
                self._open.move_to_end(owner)
                return found, False
            while len(self._open) >= MOST_INTERPRETERS:
                await self.end(self._longest_idle())
            options = {"kept_output_chars": KEPT_CHARS, "cell_memory_bytes": MEMORY_BYTES}
            session = await self._environment.open(_Nobody(), options)
            found = self._open[owner] = _Interpreter(session)
            return found, True

    def _longest_idle(self) -> str:
        """One that is not at work, if there is any."""
        idle = (owner for owner, each in self._open.items() if not each.turn.locked())
        return next(idle, next(iter(self._open)))


def _bounded(text: str, most_bytes: int) -> tuple[str, bool]:
    data = text.encode("utf-8", "replace")
    return data[:most_bytes].decode("utf-8", "ignore"), len(data) > most_bytes
