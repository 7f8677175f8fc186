"""One attack: its name, its code, and how the checker decides whether it worked."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Literal

from msgspec import Struct, field

from rlm.errors import SessionError
from rlm.results import CellResult
from rlm.testing.attacks import toolkit
from rlm.testing.attacks.world import World
from rlm.testing.conformance.bench import Repl
from rlm.testing.conformance.runner import MAX_SECONDS, Finding, Task

__all__ = ["Attack", "Judge", "Outcome"]

MEMORY_BYTES = 128 << 20
"""The memory limit of an attack's cells; memory bombs take three times as much."""

_OVERTIME_SECONDS = 40.0
"""Time beyond the limits of its cells: ending one that ignores interrupts takes 30 seconds."""

_SAMPLE_SECONDS = 0.02
_OPTIONS = {"cell_memory_bytes": MEMORY_BYTES, "kept_output_chars": 100_000}

_REFUSALS = {
    *("BlockingIOError", "BrokenPipeError", "CallFailed", "ConnectionRefusedError"),
    *("ConnectionResetError", "FileNotFoundError", "ImportError", "KeyboardInterrupt"),
    *("MemoryError", "ModuleNotFoundError", "NotADirectoryError", "OSError", "PermissionError"),
    *("ProcessLookupError", "RecursionError", "SystemExit", "TimeoutError"),
    *("TooLarge", "WireError"),
}
"""Errors with which a system, or the REPL, refuses an attack. Any other means that the attack
itself is broken."""


class Outcome(Struct, frozen=True):
    """The outcome of the cell, as the session reports it."""

    result: CellResult | None = None
    death: str | None = None
    endless: bool = False
    close_error: str | None = None

    @property
    def output(self) -> str:
        """All output of the cell, and what it submitted."""
        if self.result is None:
            return ""
        submission = self.result.submission
        handed_in = submission.text if submission is not None else ""
        return f"{self.result.stdout}{self.result.stderr}{handed_in}"

    def lines(self, word: str) -> list[str]:
        """Return what follows `word:` at the start of lines."""
        start = f"{word}:"
        found = (line for line in self.output.splitlines() if line.startswith(start))
        return [line.removeprefix(start).strip() for line in found]


Judge = Callable[[World, Outcome], Awaitable[str | None]]
"""Returns the evidence that an attack worked, or None."""


class Attack(Struct, frozen=True, kw_only=True):
    """An attack. The cell `code` runs after the toolkit, and `then` in a second cell.

    `shares`: it leaves its session unchanged, so the next attack may use it. `raises` is the type
    of error that stops it, if that is an unusual one.
    """

    name: str
    group: str
    code: str
    judge: Judge
    then: str = "1 + 1"
    success: Literal["SUCCEEDED", "visible"] = "SUCCEEDED"
    options: dict[str, Any] = field(default_factory=dict)
    timeout_seconds: float = 10.0
    together: bool = False
    shares: bool = False
    raises: str = ""

    def task(self, world: World) -> Task:
        """Return the task that runs this attack in a world."""
        patience = world.bench.patience
        return Task(
            self.name,
            self.group,
            lambda: self._find(world),
            together=self.together,
            max_seconds=patience * (MAX_SECONDS + 2 * (self.timeout_seconds + _OVERTIME_SECONDS)),
        )

    async def _find(self, world: World) -> Finding:
        if self.together:
            with world.side_by_side():
                return await self._judged(world)
        world.begin()
        return await self._judged(world)

    async def _judged(self, world: World) -> Finding:
        outcome = await self._attempt(world)
        if outcome.endless:
            return self.success, "the cell could not be stopped"
        evidence = await self.judge(world, outcome)
        if evidence is None:
            evidence = await world.harm()
        return (self.success, evidence) if evidence is not None else self._stopped(outcome)

    async def _attempt(self, world: World) -> Outcome:
        repl = await self._open(world)
        outcome = Outcome(endless=True)
        try:
            outcome = await self._run(world, repl)
        finally:
            usable = outcome.death is None and not outcome.endless
            if self.shares and usable:
                world.keep_session(repl)
                error = None
            else:
                error = await _close(repl)
        return Outcome(outcome.result, outcome.death, outcome.endless, error)

    async def _open(self, world: World) -> Repl:
        kept = world.kept_session() if self.shares else None
        repl = kept or await world.bench.open(**{**_OPTIONS, **self.options})
        repl.host.max_prompts = 100_000
        return repl

    async def _run(self, world: World, repl: Repl) -> Outcome:
        await repl.load(world.target())
        result = None
        try:
            result = await repl.run(toolkit.PRELUDE)
            if result.error is not None:
                return Outcome(result=result)
            # Both cells get the time of `Repl.run`: more in a slow environment.
            max_seconds = world.bench.patience * (2 * self.timeout_seconds + _OVERTIME_SECONDS)
            async with asyncio.timeout(max_seconds), _sampled(world):
                result = await repl.run(self.code, timeout_seconds=self.timeout_seconds)
                await repl.run(self.then, timeout_seconds=self.timeout_seconds)
        except SessionError as error:
            return Outcome(result=result, death=str(error))
        except TimeoutError:
            return Outcome(endless=True)
        return Outcome(result=result)

    def _stopped(self, outcome: Outcome) -> Finding:
        """Return how it was stopped; `failed` if the attack itself is broken."""
        if outcome.death is not None:
            return "stopped", f"the session ended: {outcome.death}"
        error = outcome.result.error if outcome.result is not None else None
        if error is None:
            refusals = outcome.lines("denied")
            return "stopped", refusals[-1][:200] if refusals else "nothing happened outside"
        if error.type == "NotImplementedError":
            return "not applicable", error.message
        missing = error.type == "AttributeError" and error.message.startswith("module ")
        no_threads = error.type == "RuntimeError" and error.message == "can't start new thread"
        if error.type in {*_REFUSALS, self.raises} or missing or no_threads:
            return "stopped", f"{error.type}: {error.message[:200]}"
        return "failed", f"the attack itself is broken: {error.type}: {error.message[:200]}"


@contextlib.asynccontextmanager
async def _sampled(world: World) -> AsyncGenerator[None, None]:
    """Sample the checker's memory while an attack runs."""

    async def look() -> None:
        while True:
            world.sample()
            await asyncio.sleep(_SAMPLE_SECONDS)

    task = asyncio.create_task(look())
    try:
        yield
    finally:
        task.cancel()


async def _close(repl: Repl) -> str | None:
    """Close the session and return what went wrong."""
    try:
        async with asyncio.timeout(_OVERTIME_SECONDS):
            await repl.session.close()
    except TimeoutError:
        return "close() did not end"
    except (OSError, RecursionError, RuntimeError) as error:
        return f"close() raised {type(error).__name__}"
    return None
