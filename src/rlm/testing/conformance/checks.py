"""Defines checks: each is a name and an async function, which raises an error if it fails."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from rlm.testing.conformance.bench import Bench, NotOffered, Repl, Unmet
from rlm.testing.conformance.runner import MAX_SECONDS, Finding, Task

__all__ = ["Check", "Checks"]

Function = Callable[[Repl], Awaitable[str | None]]


class Check(Struct, frozen=True):
    """One promise about sessions. With `options`, it gets its own session with those."""

    name: str
    group: str
    function: Function
    options: dict[str, Any] | None
    together: bool

    def task(self, bench: Bench) -> Task:
        """Return the task that runs this check."""

        harm = bench.harm_of(f"{self.group}: {self.name}")

        async def find() -> Finding:
            if harm is not None:
                return "not offered", harm
            try:
                return "passed", await self._run(bench) or ""
            except Unmet as error:
                return "failed", str(error)
            except NotOffered as error:
                return "not offered", str(error)

        excuse = bench.excuse_for(f"{self.group}: {self.name}")
        return Task(
            self.name,
            self.group,
            find,
            together=self.together,
            max_seconds=MAX_SECONDS * bench.patience,
            excuse=excuse,
        )

    async def _run(self, bench: Bench) -> str | None:
        if self.options is not None:
            async with bench.opened(**self.options) as repl:
                return await self.function(repl)
        try:
            return await self.function(await bench.shared())
        except BaseException:
            await bench.drop_shared()
            raise


class Checks:
    """The checks of one group, in order. Use an instance as a decorator."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.all: list[Check] = []

    def __call__(
        self, name: str, *, fresh: bool = False, together: bool = False, **options: Any
    ) -> Callable[[Function], Function]:
        """Add a check; `fresh`, `together` or any option gives it its own session."""
        own = fresh or together or options

        def add(function: Function) -> Function:
            made = Check(name, self.group, function, options if own else None, together)
            self.all.append(made)
            return function

        return add
