"""Runs clients' code in the sandbox, over files that they have handles for.

A session has one interpreter, which keeps its variables, so a client can work step by step. It is
opened when first needed, and closed with the session, with its worker, or when too many are open.
"""

import asyncio
import re
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

from rlm._util.limited import in_thread
from rlm.context import store_context
from rlm.engine.repl_values import FRESH_ANSWER
from rlm.errors import CallRefused, SessionError
from rlm.gateway.errors import Refused
from rlm.gateway.files import MAX_BYTES
from rlm.gateway.tasks import BackgroundTasks, OwnerLimits
from rlm.protocols import Environment, Session
from rlm.results import CellResult
from rlm.wiring.registry import AUTO, make_environment

__all__ = ["Executed", "Executor"]

MAX_INTERPRETERS = 16
MAX_INTERPRETERS_EACH = 8
MAX_AT_ONCE_EACH = 4
KEPT_CHARS = 20_000
MEMORY_BYTES = 1 << 30
_FOLDERS = re.compile(r'(?<=File ")/(?:[^"\n]*/)?')


class Executed:
    """The result of some code. `fresh`: the interpreter is new, and earlier variables are gone."""

    def __init__(self, result: CellResult | None, problem: str, *, fresh: bool) -> None:
        self.fresh = fresh
        self.output, self.cut = "", False
        self.error: str | None = problem or None
        if result is not None:
            self._take(result)

    def _take(self, result: CellResult) -> None:
        """Cut everything before it is processed: code may return many megabytes."""
        submitted = result.submission.text if result.submission else ""
        said = (result.stdout, result.stderr, submitted)
        printed = "\n".join(text[: MAX_BYTES + 1] for text in said if text)
        traceback = _traceback_of(result)
        error, self.cut = _bounded(_FOLDERS.sub("", traceback[:KEPT_CHARS]), MAX_BYTES // 4)
        self.error = error or None
        room = MAX_BYTES - len(error.encode())
        self.output, cut = _bounded(printed, room)
        written = result.stdout_chars + result.stderr_chars
        self.cut |= cut or len(traceback) > KEPT_CHARS
        self.cut |= written > len(result.stdout) + len(result.stderr)

    @property
    def size_bytes(self) -> int:
        return len(self.output.encode()) + len((self.error or "").encode())


def _traceback_of(result: CellResult) -> str:
    """Return the end of the traceback, slightly longer than the part that is kept."""
    if result.error is None:
        return ""
    traceback = (result.error.traceback or result.error.message)[-KEPT_CHARS - 1 :]
    kind, message = result.error.type[:200], result.error.message[:KEPT_CHARS]
    return traceback if kind in traceback else f"{traceback.rstrip()}\n{kind}: {message}".lstrip()


class _Interpreter:
    """One session of the sandbox, which runs one piece of code at a time for its `users`."""

    def __init__(self, session: Session, principal: str) -> None:
        self.session = session
        self.principal = principal
        self.users = 0
        self.turn = asyncio.Lock()


class _NoHost:
    """The host of the code: it offers no models and no tools."""

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        raise CallRefused("code of rlm_exec has no models and no tools", limit="kind")


class Executor:
    """Interpreters by the id of a gateway session."""

    def __init__(self, *, seconds: float = 30.0, environment: Environment | None = None) -> None:
        self._seconds = seconds
        self._environment = environment or make_environment(AUTO, {"warm_sessions": 0})
        self._open: OrderedDict[str, _Interpreter] = OrderedDict()
        self._opening = asyncio.Lock()
        self._limits = OwnerLimits(MAX_AT_ONCE_EACH)
        self._tasks = BackgroundTasks()

    async def run(
        self, owner: str, code: str, files: dict[str, str] | None, principal: str = ""
    ) -> Executed:
        """Execute code with `files` bound; None keeps those of the previous call."""
        return await self._tasks.run(self._in_turn(principal, owner, code, files))

    async def end(self, owner: str) -> None:
        """Close a session's interpreter, if it has one."""
        if (found := self._open.pop(owner, None)) is not None:
            await found.session.close()

    async def close(self) -> None:
        await self._tasks.close()
        for owner in list(self._open):
            await self.end(owner)
        await self._environment.close()

    def end_later(self, owner: str) -> None:
        """Close a session's interpreter in the background."""
        if owner in self._open:
            self._tasks.start(self.end(owner))

    async def _in_turn(
        self, principal: str, owner: str, code: str, files: dict[str, str] | None
    ) -> Executed:
        async with self._limits.slot(principal):
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
                if result.submission is not None:  # Otherwise later code would submit it again.
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
        """Return the interpreter of a session, opened if necessary, and whether it is new."""
        async with self._opening:
            found, fresh = self._open.get(owner), False
            if found is None:
                if (evicted := self._evictable_for(principal)) is not None:
                    await self.end(evicted)
                options = {"kept_output_chars": KEPT_CHARS, "cell_memory_bytes": MEMORY_BYTES}
                session = await self._environment.open(_NoHost(), options)
                found, fresh = _Interpreter(session, principal), True
                self._open[owner] = found
            self._open.move_to_end(owner)
            found.users += 1
            return found, fresh

    def _evictable_for(self, principal: str) -> str | None:
        """Return the interpreter to close for a new one, or None if there is room.

        It is the client's own that has been idle longest. Another client's is closed only if all
        are in use and that client has more of them than this one will have. Raises Refused if none
        can be closed.
        """
        held = Counter(each.principal for each in self._open.values())
        has_room = held[principal] < MAX_INTERPRETERS_EACH
        if has_room and len(self._open) < MAX_INTERPRETERS:
            return None
        idle = [(owner, each.principal) for owner, each in self._open.items() if not each.users]
        mine = (owner for owner, whose in idle if whose == principal)
        if (own := next(mine, None)) is not None:
            return own
        others = (owner for owner, whose in idle if held[whose] > held[principal] + 1)
        if has_room and (other := next(others, None)) is not None:
            return other
        raise Refused("all interpreters are busy; try again when one of yours has finished")


def _bounded(text: str, max_bytes: int) -> tuple[str, bool]:
    data = text.encode("utf-8", "replace")
    return data[:max_bytes].decode("utf-8", "ignore"), len(data) > max_bytes
