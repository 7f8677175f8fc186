"""Code of clients, in the sandbox, over files that they have handles for.

A session has one interpreter, so that a client can work step by step: variables stay. It is opened
when it is first needed and ends with the session, with its worker, or when too many are open.
"""

import asyncio
import re
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

from rlm._util.limited import in_thread
from rlm.context import store_context
from rlm.engine.sessions import FRESH_ANSWER
from rlm.environments.local import LocalEnvironment
from rlm.errors import CallRefused, SessionError
from rlm.gateway.detached import Detached
from rlm.gateway.refusals import Refused
from rlm.gateway.spans import MOST_BYTES
from rlm.gateway.turns import Turns
from rlm.protocols import Environment, Session
from rlm.results import CellResult

__all__ = ["Executed", "Executor"]

MOST_INTERPRETERS = 16
MOST_INTERPRETERS_EACH = 8
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
        """Everything is cut before it is looked at: code may hand over many megabytes."""
        submitted = result.submission.text if result.submission else ""
        said = (result.stdout, result.stderr, submitted)
        printed = "\n".join(text[: MOST_BYTES + 1] for text in said if text)
        told = _told(result)
        error, self.cut = _bounded(_FOLDERS.sub("", told[:KEPT_CHARS]), MOST_BYTES // 4)
        self.error = error or None
        room = MOST_BYTES - len(error.encode())
        self.output, cut = _bounded(printed, room)
        written = result.stdout_chars + result.stderr_chars
        self.cut |= cut or len(told) > KEPT_CHARS
        self.cut |= written > len(result.stdout) + len(result.stderr)

    @property
    def size_bytes(self) -> int:
        return len(self.output.encode()) + len((self.error or "").encode())


def _told(result: CellResult) -> str:
    """The end of what went wrong, a little longer than what is kept of it."""
    if result.error is None:
        return ""
    told = (result.error.traceback or result.error.message)[-KEPT_CHARS - 1 :]
    kind, message = result.error.type[:200], result.error.message[:KEPT_CHARS]
    return told if kind in told else f"{told.rstrip()}\n{kind}: {message}".lstrip()


class _Interpreter:
    """One session of the sandbox; code runs in it one after the other. `users` wait or run."""

    def __init__(self, session: Session, principal: str) -> None:
        self.session = session
        self.principal = principal
        self.users = 0
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
            return await self._run(principal, owner, code, files)

    async def _run(
        self, principal: str, owner: str, code: str, files: dict[str, str] | None
    ) -> Executed:
        stored = None if files is None else await in_thread(store_context, files)
        interpreter, fresh = await self._interpreter(principal, owner)
        try:
            async with interpreter.turn:
                if stored is not None:
                    await interpreter.session.load("files", stored)
                result = await interpreter.session.execute(code, timeout_seconds=self._seconds)
                if result.submission is not None:  # Else all later code would tell of it again.
                    await interpreter.session.load("answer", FRESH_ANSWER)
                return Executed(result, "", fresh=fresh)
        except SessionError as error:
            await self._drop(owner, interpreter)
            return Executed(None, f"the interpreter ended: {error}", fresh=fresh)
        except asyncio.CancelledError:
            await self._drop(owner, interpreter)
            raise
        finally:
            interpreter.users -= 1

    async def _drop(self, owner: str, interpreter: _Interpreter) -> None:
        if self._open.get(owner) is interpreter:
            del self._open[owner]
        await interpreter.session.close()

    async def _interpreter(self, principal: str, owner: str) -> tuple[_Interpreter, bool]:
        """The interpreter of a session, with one more user; new if there was none."""
        async with self._opening:
            found, fresh = self._open.get(owner), False
            if found is None:
                if (in_the_way := self._in_the_way_of(principal)) is not None:
                    await self.end(in_the_way)
                options = {"kept_output_chars": KEPT_CHARS, "cell_memory_bytes": MEMORY_BYTES}
                session = await self._environment.open(_Nobody(), options)
                found, fresh = _Interpreter(session, principal), True
                self._open[owner] = found
            self._open.move_to_end(owner)
            found.users += 1
            return found, fresh

    def _in_the_way_of(self, principal: str) -> str | None:
        """The interpreter to end for a new one; None if there is room, Refused if none may be.

        It is the longest idle one of the client's own. One of another client's is ended only if
        all places are taken and that client has more of them than this one will have.
        """
        held = Counter(each.principal for each in self._open.values())
        has_room = held[principal] < MOST_INTERPRETERS_EACH
        if has_room and len(self._open) < MOST_INTERPRETERS:
            return None
        idle = [(owner, each.principal) for owner, each in self._open.items() if not each.users]
        mine = (owner for owner, whose in idle if whose == principal)
        if (own := next(mine, None)) is not None:
            return own
        others = (owner for owner, whose in idle if held[whose] > held[principal] + 1)
        if has_room and (other := next(others, None)) is not None:
            return other
        raise Refused("all interpreters are at work; try again when one of yours has ended")


def _bounded(text: str, most_bytes: int) -> tuple[str, bool]:
    data = text.encode("utf-8", "replace")
    return data[:most_bytes].decode("utf-8", "ignore"), len(data) > most_bytes
