"""One monty worker: code is fed to it in a thread of its own, and can be stopped at any moment.

pydantic-monty's async client now and then aborts a process that is about to exit, so its blocking
client is used, in threads.
"""

import asyncio
import contextlib
import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rlm.environments.monty.process import WorkerProcess
from rlm.environments.monty.tracebacks import Raised

__all__ = ["Crashed", "Interpreter", "Printed"]

Printed = Callable[[str, str], object]

_CLOSE_SECONDS = 5.0
_OWN_SECONDS = 30.0


class Crashed(Exception):
    """The worker is gone, and its variables with it."""


class Interpreter:
    """A checked-out worker; whoever feeds it waits for each feed before the next."""

    def __init__(self, checkout: Any, threads: ThreadPoolExecutor) -> None:
        self._checkout = checkout
        self._threads = threads
        self._monty = importlib.import_module("pydantic_monty")
        self._loop = asyncio.get_running_loop()
        self._process = WorkerProcess(checkout.worker_pid)
        self._is_closed = False

    @classmethod
    async def start(
        cls, pool: Any, threads: ThreadPoolExecutor, settings: dict[str, Any]
    ) -> "Interpreter":
        """Check a fresh worker out of the pool."""
        checkout = pool.checkout(**settings)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(threads, checkout.__enter__)
        return cls(checkout, threads)

    async def feed(
        self, code: str, inputs: dict[str, Any] | None = None, printed: Printed | None = None
    ) -> Any:
        """Run code until it ends or asks something; the snapshot of that moment."""
        with self._process:
            return await self._call(
                self._checkout.feed_start, code, inputs=inputs, print_callback=printed or _unheard
            )

    async def resume(self, turn: Any, *given: Any) -> Any:
        """Go on from a snapshot, with an answer if there is one."""
        with self._process:
            return await self._call(turn.resume, *given)

    async def value_of(self, code: str, inputs: dict[str, Any] | None = None) -> Any:
        """The value of code of ours, which asks nothing; names it does not know stay unknown.

        Cells can change what our names mean, so it has a time limit too.
        """
        timer = self._loop.call_later(_OWN_SECONDS, self.kill)
        try:
            turn = await self.feed(code, inputs)
            while not self.is_over(turn):
                answer = () if hasattr(turn, "variable_name") else ({"exception": NameError("?")},)
                turn = await self.resume(turn, *answer)
        finally:
            timer.cancel()
        return turn.output

    def is_over(self, turn: Any) -> bool:
        """Whether a snapshot is that of the end."""
        return isinstance(turn, self._monty.MontyComplete)

    async def dump(self) -> bytes:
        """All of its state, for `load` of another worker."""
        return bytes(await self._call(self._checkout.dump))

    async def load(self, dump: bytes) -> None:
        """Take the state of another worker; only before anything was fed."""
        await self._call(self._checkout.load_session, dump)

    def kill(self) -> None:
        """End the worker at once; a feed that runs ends in Crashed."""
        self._process.kill()

    async def close(self) -> None:
        """End the worker and give it back."""
        if self._is_closed:
            return
        self._is_closed = True
        self._process.close()
        leaving = self._loop.run_in_executor(self._threads, self._leave)
        await asyncio.wait([leaving], timeout=_CLOSE_SECONDS)

    def _leave(self) -> None:
        with contextlib.suppress(self._monty.MontyError, RuntimeError):
            self._checkout.__exit__(None, None, None)

    async def _call(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        monty = self._monty
        try:
            return await self._loop.run_in_executor(
                self._threads, lambda: function(*given, **named)
            )
        except (monty.MontyRuntimeError, monty.MontySyntaxError) as error:
            raised = Raised.of(error)
            if raised.is_fatal:
                raise Crashed(raised.message) from None
            raise raised from None
        except (monty.MontyError, RuntimeError) as error:
            raise Crashed(str(error)) from None


def _unheard(stream: str, text: str) -> None:
    """What our own code prints goes nowhere."""
