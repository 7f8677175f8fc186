"""Cells in monty, from reading them to their result; or why a cell needs full Python."""

import asyncio
from typing import Any

from rlm.environments._clock import CellClock
from rlm.environments.monty import outcome
from rlm.environments.monty.carry import Cargo, pack
from rlm.environments.monty.cell import Cell, NotPython, checked_cell
from rlm.environments.monty.definitions import Definitions
from rlm.environments.monty.doubts import Doubt, NeedsPython, doubt_about
from rlm.environments.monty.here import Here
from rlm.environments.monty.interpreter import Crashed
from rlm.environments.monty.loading import Misfit, context_value
from rlm.environments.monty.questions import AWAITABLE, Questions
from rlm.environments.monty.running import Running
from rlm.environments.monty.support import unsupported
from rlm.environments.monty.survey import Survey, needs, probe
from rlm.protocols import ContextSource
from rlm.results import CellResult
from rlm.worker.capture import BoundedStream

__all__ = ["Repl"]


class Repl:
    """One session's side in monty."""

    def __init__(
        self,
        here: Here,
        questions: Questions,
        survey: Survey,
        settings: dict[str, Any],
        most_context_bytes: int,
    ) -> None:
        self.here = here
        self._questions = questions
        self._survey = survey
        self._most_context_bytes = most_context_bytes
        self._max_chars: int = settings["max_submission_chars"]
        kept: int = settings["kept_output_chars"]
        self._streams = (BoundedStream(kept), BoundedStream(kept))
        self._loop = asyncio.get_running_loop()
        self._clock = CellClock(self._loop, self._on_time_up, lambda _: here.interpreter.kill())
        self._running: Running | None = None
        self._definitions = Definitions()
        self._sources_before: dict[str, str] = {}
        self._modules: dict[str, str] = {}
        self._cells = 0

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the user's variables."""
        return tuple(row.name for row in self.here.rows)

    async def load(self, name: str, context: ContextSource) -> None:
        """Bind a context; NeedsPython if monty can't hold it."""
        try:
            value = await asyncio.to_thread(context_value, context, self._most_context_bytes)
        except Misfit as error:
            raise NeedsPython(f"room for {name}: {error}") from None
        try:
            await self.here.bind(name, value)
        except Crashed as error:
            raise NeedsPython(f"room for {name}: {error}") from None

    async def execute(self, code: str, timeout_seconds: float) -> tuple[CellResult, Doubt | None]:
        """Run a cell; an error that asked nobody anything may be looked at again elsewhere."""
        self._cells += 1
        name = f"<cell {self._cells}>"
        try:
            cell = checked_cell(code, name, AWAITABLE | self._questions.tools)
        except NotPython as error:
            return CellResult(error=error.error), None
        modules = dict(self._modules)
        lack = unsupported(cell.tree, modules) or await self._lack_of(cell, modules)
        if lack is not None:
            raise NeedsPython(lack)
        return await self._run(cell, name, modules, timeout_seconds)

    async def _lack_of(self, cell: Cell, modules: dict[str, str]) -> str | None:
        wanted = needs(cell.tree, modules)
        if unknown := self._survey.unknown(wanted):
            await self.here.undo_point()
            missing = await self.here.interpreter.value_of(probe(unknown))
            self._survey.take(unknown, missing)
        return self._survey.lacks(wanted)

    async def _run(
        self, cell: Cell, name: str, modules: dict[str, str], timeout_seconds: float
    ) -> tuple[CellResult, Doubt | None]:
        before, questions = self.here.rows, self._questions
        questions.start_over()
        running = self._running = Running(self.here.interpreter, questions, self._clock)
        started = self._loop.time()
        self._clock.start(timeout_seconds, paused=False)
        try:
            ending = await self.here.run(cell, running, *self._streams)
        finally:
            self._clock.stop()
            self._running = None
        seconds = self._loop.time() - started
        result = outcome.cell_result(
            cell, name, ending, before, questions, running, self._streams, seconds, self._max_chars
        )
        self._sources_before = self._definitions.sources()
        if ending.crashed is None:
            self._definitions.note(cell)
            self._modules = modules
        if running.was_interrupted and self._clock.interrupts_sent:
            return outcome.timed_out(result, timeout_seconds), None
        doubt = doubt_about(ending, has_asked=questions.asked > 0)
        return result, None if running.was_interrupted else doubt

    async def fetch(self, name: str) -> str | None:
        """The text of a variable; None if it has none."""
        if not name.isidentifier() or name.startswith("_"):
            return None
        return await self.here.text_of(name, self._max_chars)

    async def cargo(self, doubt: Doubt | None) -> Cargo:
        """What can be carried to full Python: of now, or of before the cell in doubt."""
        await self.here.undo_point()
        if doubt is None:
            sources = self._definitions.sources()
            return await pack(self.here.interpreter, self.variables, sources)
        interpreter = await self.here.copy(doubt.before)
        try:
            return await pack(interpreter, self.variables, self._sources_before)
        finally:
            await interpreter.close()

    async def interrupt(self) -> None:
        """Stop the running cell, if there is one."""
        if self._running is not None:
            self._running.interrupt()

    def _on_time_up(self) -> None:
        if self._running is not None:
            self._running.interrupt(is_out_of_time=True)

    async def close(self) -> None:
        """End the worker."""
        self._clock.close()
        if self._running is not None:
            self._running.abort()
        await self.here.close()
