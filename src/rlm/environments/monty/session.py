"""A session that begins in monty, and goes on in `local` from the first cell that needs to."""

from collections.abc import Callable

from rlm.environments.monty import outcome
from rlm.environments.monty.doubts import Doubt, NeedsPython
from rlm.environments.monty.interpreter import Crashed
from rlm.environments.monty.life import Life
from rlm.environments.monty.moving import Mover, note_of
from rlm.environments.monty.repl import Repl
from rlm.errors import ConfigError, SessionDied, SessionError
from rlm.protocols import ContextSource, Session
from rlm.results import CellResult

__all__ = ["MontySession"]


class MontySession:
    """Implements `rlm.protocols.Session`. `mover` knows where full Python is, if it may be used."""

    def __init__(self, repl: Repl, mover: Mover) -> None:
        self._repl = repl
        self._mover = mover
        self._local: Session | None = None
        self._contexts: dict[str, ContextSource] = {}
        self._life = Life()
        self._tell: Callable[[MontySession], None] = lambda _: None

    def when_closed(self, tell: "Callable[[MontySession], None]") -> None:
        """Call `tell` with this session when it is closed."""
        self._tell = tell

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the user's variables."""
        return (self._local or self._repl).variables

    @property
    def runs_in(self) -> str:
        """Where its cells run by now: "monty" or "local"."""
        return "monty" if self._local is None else "local"

    @property
    def _elsewhere(self) -> Session:
        assert self._local is not None, "only asked for after moving"
        return self._local

    async def load(self, name: str, context: ContextSource) -> None:
        """Bind a context; one that monty can't hold moves the session."""
        async with self._life.request():
            if self._local is None:
                try:
                    await self._repl.load(name, context)
                    self._contexts[name] = context
                    return
                except NeedsPython as error:
                    await self._move_or_fail(error)
            await self._elsewhere.load(name, context)

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        """Run a cell, in monty if that has all it needs."""
        async with self._life.request():
            if self._local is not None:
                return await self._local.execute(code, timeout_seconds=timeout_seconds)
            try:
                result, doubt = await self._repl.execute(code, timeout_seconds)
            except NeedsPython as lack:
                return await self._execute_elsewhere(code, timeout_seconds, lack)
            if doubt is None or not self._mover.may_move:
                return result
            if doubt.is_settled:
                return await self._move_after(result)
            return await self._second_opinion(code, timeout_seconds, result, doubt)

    async def _execute_elsewhere(
        self, code: str, timeout_seconds: float, lack: NeedsPython
    ) -> CellResult:
        try:
            note = await self._move(lack)
        except ConfigError as error:
            return outcome.refused(str(lack), str(error))
        result = await self._elsewhere.execute(code, timeout_seconds=timeout_seconds)
        return outcome.with_note(result, note)

    async def _move_or_fail(self, lack: NeedsPython) -> None:
        try:
            await self._move(lack)
        except ConfigError as error:
            raise SessionError(f"monty lacks {lack}. {error}") from None

    async def _move(self, lack: NeedsPython) -> str:
        """Go on in full Python from here; one line about it."""
        self._local, lost = await self._mover.opened(self._repl, None, self._contexts)
        await self._repl.close()
        return note_of(f"this cell needed {lack}", lost)

    async def _move_after(self, result: CellResult) -> CellResult:
        """Go on in full Python after a cell that needed it, and can't be run twice."""
        try:
            self._local, lost = await self._mover.opened(self._repl, None, self._contexts)
        except (ConfigError, Crashed, SessionError):
            return result
        await self._repl.close()
        why = "this cell needed full Python, but is not run again because of its calls"
        return outcome.with_note(result, note_of(why, lost))

    async def _second_opinion(
        self, code: str, timeout_seconds: float, result: CellResult, doubt: Doubt
    ) -> CellResult:
        """Run a failed cell again from the state before it: is the error Python's or monty's?

        It had asked nobody anything, so nothing outside happened, and nothing happens twice.
        """
        try:
            session, lost = await self._mover.opened(self._repl, doubt, self._contexts)
        except (ConfigError, Crashed, SessionError):
            return result
        try:
            again = await session.execute(code, timeout_seconds=timeout_seconds)
        except SessionError:  # What kills full Python did no harm here.
            await session.close()
            return result
        is_same = again.error is not None and again.error.type == doubt.kind
        if is_same and not self._mover.asked:
            await session.close()
            return result
        self._local = session
        await self._repl.close()
        return outcome.with_note(again, note_of("this cell needed full Python", lost))

    async def fetch(self, name: str) -> str | None:
        """The text of a variable; None if there is none or it has no text."""
        async with self._life.request():
            return await (self._local or self._repl).fetch(name)

    async def interrupt(self) -> None:
        """Stop the running cell; its variables stay, or go back to what they were before it."""
        await (self._local or self._repl).interrupt()

    async def close(self) -> None:
        """End everything of this session; may be called twice."""
        self._life.end(SessionDied("the session was closed"))
        await self._repl.close()
        if self._local is not None:
            await self._local.close()
        self._tell(self)
