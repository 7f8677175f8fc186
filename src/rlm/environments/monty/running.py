"""One feed on its way: what it asks is answered without blocking, and it can be stopped.

A feed that waits for an answer is stopped by a KeyboardInterrupt in the place of that answer, and
keeps its variables. One that computes can only be killed: monty has no other way.
"""

import asyncio
from typing import Any

from rlm.environments._clock import CellClock
from rlm.environments.monty.cell import ASYNC_PREFIX
from rlm.environments.monty.interpreter import Crashed, Interpreter, Printed
from rlm.environments.monty.questions import Questions
from rlm.environments.monty.values import as_raised
from rlm.errors import ProtocolViolation
from rlm.worker.replies import CallFailed, ToolFailed

__all__ = ["Running"]

_STOP_SECONDS = 0.25
"""How long a cell that is interrupted may go on before its worker is killed."""

_FAILED_CALL_SECONDS = 0.01
_SLEEPS = frozenset({"time.sleep", "asyncio.sleep"})
_MOST_SECONDS = 1e6


class Running:
    """`failures` maps the text of an error that we raised in the cell to its published name."""

    def __init__(self, interpreter: Interpreter, questions: Questions, clock: CellClock) -> None:
        self._interpreter = interpreter
        self._questions = questions
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._answers: dict[int, asyncio.Task[Any]] = {}
        self._calls = 0
        self._owed = 0
        self._is_out_of_time = False
        self._is_aborted = False
        self._stop: asyncio.TimerHandle | None = None
        self.failures: dict[str, str] = {}
        self.was_interrupted = False

    async def run(self, code: str, inputs: dict[str, Any] | None, printed: Printed) -> Any:
        """Feed code and see it through; its value."""
        try:
            turn = await self._interpreter.feed(code, inputs, printed)
            while not self._interpreter.is_over(turn):
                turn = await self._next(turn)
            return turn.output
        except asyncio.CancelledError:
            self._interpreter.kill()
            raise
        finally:
            if self._stop is not None:
                self._stop.cancel()
            for task in self._answers.values():
                task.cancel()

    def interrupt(self, *, is_out_of_time: bool = False) -> None:
        """Stop the cell: now if it waits, else when it asks next; if neither comes, kill it."""
        self.was_interrupted = True
        self._is_out_of_time |= is_out_of_time
        waiting = [task for task in self._answers.values() if not task.done()]
        self._owed += not waiting
        for task in waiting:
            task.cancel()
        if self._stop is None:
            grace = _STOP_SECONDS if is_out_of_time else 4 * _STOP_SECONDS
            self._stop = self._loop.call_later(grace, self._kill_unless_it_asks)

    def abort(self) -> None:
        """End the cell, because its session ends."""
        self._is_aborted = True
        for task in self._answers.values():
            task.cancel()

    def _kill_unless_it_asks(self) -> None:
        self._stop = None
        if self._owed or self._is_out_of_time:
            self._interpreter.kill()

    async def _next(self, turn: Any) -> Any:
        """Answer one snapshot."""
        if hasattr(turn, "pending_call_ids"):
            tasks = {number: self._answers[number] for number in turn.pending_call_ids}
            await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
            ready = {number: self._result(task) for number, task in tasks.items() if task.done()}
            for number in ready:
                del self._answers[number]
            return await self._interpreter.resume(turn, ready)
        if hasattr(turn, "variable_name"):
            return await self._interpreter.resume(turn)
        return await self._answer_call(turn)

    async def _answer_call(self, turn: Any) -> Any:
        name = turn.function_name
        task = self._answers[turn.call_id] = self._loop.create_task(self._answer(turn, name))
        if self._owed or self._is_out_of_time:
            self._owed = 0
            task.cancel()
        is_sleep = name == "asyncio.sleep" and not turn.allow_eager_await
        if is_sleep or name.startswith(ASYNC_PREFIX):
            return await self._interpreter.resume(turn, {"future": ...})
        await asyncio.wait({task})
        del self._answers[turn.call_id]
        return await self._interpreter.resume(turn, self._result(task))

    async def _answer(self, turn: Any, name: str) -> Any:
        """The value of one call; the cell's time stands still while the host is at it."""
        if turn.is_os_function:
            return await self._answer_system(turn, name)
        self._calls += 1
        self._clock.pause()
        failed = self._questions.failed
        try:
            plain = name.removeprefix(ASYNC_PREFIX)
            plain = "_rlm_ask" if plain == "ask" else plain
            return await self._questions.answer(plain, turn.args, turn.kwargs)
        finally:
            self._calls -= 1
            self._clock.charge((self._questions.failed - failed) * _FAILED_CALL_SECONDS)
            if not self._calls:
                self._clock.resume()

    async def _answer_system(self, turn: Any, name: str) -> None:
        if name in _SLEEPS:
            await asyncio.sleep(min(float(turn.args[0]), _MOST_SECONDS))
        elif name == "import":
            raise ModuleNotFoundError(f"No module named {turn.args[0]!r}")
        else:
            raise PermissionError(f"{name} is not available")

    def _result(self, task: asyncio.Task[Any]) -> dict[str, Any]:
        """What the cell gets: a value, or an error that it can catch."""
        if self._is_aborted:
            raise Crashed("the session was closed")
        if task.cancelled():
            return {"exception": KeyboardInterrupt()}
        error = task.exception()
        if error is None:
            return {"return_value": task.result()}
        if isinstance(error, ProtocolViolation):
            raise error
        raised = as_raised(error)
        if isinstance(error, CallFailed | ToolFailed):
            self.failures[str(raised)] = type(error).__name__
        return {"exception": raised}
