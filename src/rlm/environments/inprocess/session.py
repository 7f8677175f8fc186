"""A session whose cells run in this process; implements `rlm.protocols.Session`."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, TypeVar

from rlm.environments import _frames
from rlm.environments._clock import CellClock, CellStopper, timed_out
from rlm.environments._session import note_names
from rlm.environments.inprocess.calls import Answers, Deliver
from rlm.environments.inprocess.repl import InProcessRepl
from rlm.errors import SessionDied, SessionError
from rlm.protocols import BaseSession, ContextSource, Host
from rlm.results import CellResult
from rlm.worker import wire

__all__ = ["InProcessSession"]

_Value = TypeVar("_Value")
_CHUNK_BYTES = 4 << 20
_FETCH_SECONDS = 10.0
_FAREWELL_SECONDS = 0.5
_STUCK = "the cell {}; its thread can't be killed, so it keeps running in this process"


class InProcessSession(BaseSession):
    """A session whose cells run in a thread; their calls are answered on the event loop."""

    def __init__(self, host: Host, settings: dict[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()  # Cells have their own, with their own output.
        self._repl = InProcessRepl(settings, self._start_call, self._on_breakpoint)
        self._stopper = CellStopper(self._repl.interrupts, lambda: 0, self._on_stuck_cell)
        self._clock = CellClock(self._loop, self._stopper.time_is_up)
        self._answers = Answers(host, self._loop, self._clock)
        self._bounds = _frames.SessionBounds.of(settings)
        self._one_request = asyncio.Lock()
        self._reply: asyncio.Future[Any] | None = None
        self._variables: dict[str, None] = {}
        self._ended: SessionError | None = None
        self._closing: asyncio.Task[None] | None = None
        self._tell_closed: Callable[[InProcessSession], None] = lambda _: None

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the user's variables."""
        return tuple(self._variables)

    async def load(self, name: str, context: ContextSource) -> None:
        """Bind a stored context to a name in the REPL."""
        chunks = context.chunks(_CHUNK_BYTES)
        async with self._one_request:
            error = await self._on_thread(lambda: self._repl.load(name, context.kind, chunks))
        if error is not None:
            raise SessionError(f"{name} could not be loaded: {error}")

    async def set_tools(self, tools: list[dict[str, str]]) -> None:
        """Replace the tools of the session."""
        async with self._one_request:
            await self._on_thread(lambda: self._repl.set_tools(tools))

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        """Run a cell; time spent in calls or in the debugger does not count."""
        async with self._one_request:
            self._answers.prompts = 0
            self._stopper.time_was_up = False
            started = self._loop.time()
            self._clock.start(timeout_seconds)
            try:
                parts = await self._on_thread(lambda: self._repl.execute(code))
            finally:
                self._clock.stop()
            frame, seconds = wire.Frame(wire.DONE, 0, parts), self._loop.time() - started
            done = _frames.read_done(
                frame, calls=self._answers.prompts, seconds=seconds, within=self._bounds
            )
        note_names(self._variables, done.result.new_variables)
        for name in done.deleted_variables:
            self._variables.pop(name, None)
        if done.result.interrupted and self._stopper.time_was_up:
            return timed_out(done.result, self._clock.ran_out_seconds)
        return done.result

    async def fetch(self, name: str) -> str | None:
        """Return the text of a variable, or None if there is none or it has no text."""
        async with self._one_request:
            self._clock.start(_FETCH_SECONDS, waits_count=True)
            try:
                return await self._on_thread(lambda: self._repl.fetch(name))
            finally:
                self._clock.stop()

    async def interrupt(self) -> None:
        """Stop the running cell; its variables stay."""
        if self._reply is not None:
            self._stopper.interrupt()

    def when_closed(self, tell: Callable[["InProcessSession"], None]) -> None:
        """Call this with the session once it is closed."""
        self._tell_closed = tell

    async def close(self) -> None:
        """End the session; may be called twice."""
        if self._closing is None:
            self._end(SessionDied("the session was closed"))
            self._closing = self._loop.create_task(self._close())
            self._closing.add_done_callback(lambda _: self._tell_closed(self))
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._answers.pending:
            await asyncio.wait(self._answers.pending, timeout=_FAREWELL_SECONDS)
        await asyncio.to_thread(self._repl.thread.join, _FAREWELL_SECONDS)

    # Work on the thread: one thing at a time.

    async def _on_thread(self, job: Callable[[], _Value]) -> _Value:
        if self._ended is not None:
            raise type(self._ended)(str(self._ended))
        self._reply = reply = self._repl.submit(job, self._loop, self._context)
        try:
            return await reply
        except asyncio.CancelledError:
            self._end(SessionDied("the session was killed because its request was cancelled"))
            raise
        finally:
            self._reply = None
            self._stopper.stop()

    def _start_call(self, parts: list[bytes], deliver: Deliver) -> None:
        """Start a call from the thread of a cell; the host answers in its own context."""
        self._loop.call_soon_threadsafe(self._answers.start, parts, deliver, context=self._context)

    # The end.

    def _on_breakpoint(self) -> None:
        """Stop the clock: a cell that is being debugged has no time limit."""
        self._loop.call_soon_threadsafe(self._clock.stop, context=self._context)

    def _on_stuck_cell(self, how: str) -> None:
        self._end(SessionDied(_STUCK.format(how)))

    def _end(self, error: SessionError) -> None:
        """Fail everything that waits for an answer; only the first error counts."""
        if self._ended is not None:
            return
        self._ended = error
        self._clock.close()
        self._stopper.stop()
        self._answers.end()
        self._repl.abandon()
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(type(error)(str(error)))
