"""Contenders: ways to run a cell, each as an environment of rlm."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.contenders.in_process import InProcessEnvironment
from benchmarks.contenders.plain import PlainEnvironment, bubblewrap
from benchmarks.processes import descendants, until_quiet
from benchmarks.round_trips import InstantHost
from rlm.environments.local import LocalEnvironment
from rlm.limits import Limits
from rlm.protocols import Environment, Session

__all__ = ["NAMES", "Contender", "Opened", "contenders"]

NAMES = ("local", "plain", "bwrap", "in-process")

OPTIONS: dict[str, Any] = {"cell_memory_bytes": Limits().cell_memory_bytes}


@dataclass(frozen=True)
class Opened:
    """A session and its processes."""

    session: Session
    pids: frozenset[int]

    async def run(self, code: str, timeout_seconds: float = 60.0) -> str:
        """Run a cell that must succeed."""
        result = await self.session.execute(code, timeout_seconds=timeout_seconds)
        if result.error is not None:
            raise RuntimeError(result.error.traceback)
        return result.stdout


@dataclass(frozen=True)
class Contender:
    """A contender: `environment` keeps nothing ready; `warm`, if there is one, does."""

    name: str
    environment: Environment
    warm: Environment | None = None
    has_processes: bool = True
    has_checkpoints: bool = False

    async def open(self) -> Session:
        return await self.environment.open(InstantHost(), OPTIONS)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Opened, None]:
        """Open a session for a block, and wait for any that is still starting."""
        await until_quiet()
        before = descendants()
        session = await self.open()
        try:
            yield Opened(session, frozenset(descendants() - before))
        finally:
            await session.close()

    async def close(self) -> None:
        await self.environment.close()
        if self.warm is not None:
            await self.warm.close()


def contenders(names: Iterable[str]) -> tuple[list[Contender], list[str]]:
    """Return the named contenders that can run here, and why the others cannot."""
    wanted = set(names)
    wrapper = bubblewrap() if "bwrap" in wanted else None
    # What is kept ready belongs to all environments of one configuration: so this one differs.
    warm = LocalEnvironment(warm_sessions=1, cpu_seconds=3_599)
    found = [
        Contender("local", LocalEnvironment(warm_sessions=0), warm, has_checkpoints=True),
        Contender("plain", PlainEnvironment()),
        Contender("in-process", InProcessEnvironment(), has_processes=False),
    ]
    remarks = []
    if wrapper is not None:
        found.insert(2, Contender("bwrap", PlainEnvironment("bwrap", wrapper)))
    elif "bwrap" in wanted:
        remarks.append("bwrap is left out: it is not installed, or may not make namespaces here")
    return [each for each in found if each.name in wanted], remarks
