"""Forks made from the page: the new run continues in this process and is watched like any other."""

import asyncio
import logging
from typing import Protocol

from rlm.context import StoredContext
from rlm.errors import ConfigError, RLMError
from rlm.records.journal import Archive, RunFacts, RunFile, fork
from rlm.viewer.library import Busy, Threads, Unknown

__all__ = ["Engines", "Forks"]

MAX_RUNNING = 4
MAX_EDIT_CHARS = 2_000_000
_log = logging.getLogger("rlm")


class Engines(Protocol):
    """Recreates the engine of a recorded run."""

    def check(self, facts: RunFacts) -> None:
        """Raise ConfigError if this run can't continue here, perhaps because a key is missing."""

    async def go_on(self, facts: RunFacts, context: StoredContext) -> None:
        """Run it to its end."""


class Forks:
    """The forks of one viewer. They end with it, and can be resumed."""

    def __init__(self, archive: Archive | None, engines: Engines | None, threads: Threads) -> None:
        self._archive = archive
        self._engines = engines
        self._threads = threads
        self._running: set[asyncio.Task[None]] = set()

    @property
    def why_not(self) -> str | None:
        """The reason why nothing can be forked here, or None."""
        if self._archive is None or self._engines is None:
            return "only journaled runs can be forked; start `rlm view` without a file, or with RUN"
        return None

    async def start(self, run_id: str, step: int, edited: str | None) -> str:
        """Fork a run, continue the new one, and return its id."""
        if self._archive is None or self._engines is None:
            raise ConfigError(str(self.why_not))
        if edited is not None and len(edited) > MAX_EDIT_CHARS:
            raise ConfigError(f"a reply may have at most {MAX_EDIT_CHARS:,} characters")
        if len(self._running) >= MAX_RUNNING:
            raise Busy(f"{MAX_RUNNING} forked runs are in progress; wait for one of them")
        facts, context = await self._threads.run(
            _made, self._archive, self._engines, run_id, step, edited
        )
        task = asyncio.create_task(self._go_on(self._engines, facts, context))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return facts.run_id

    async def _go_on(self, engines: Engines, facts: RunFacts, context: StoredContext) -> None:
        try:
            await engines.go_on(facts, context)
        except RLMError as error:  # The page sees it in the run's own events.
            _log.warning("run %s, forked in the viewer: %s", facts.run_id, error)

    async def close(self) -> None:
        """Cancel the forked runs that are in progress."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _made(
    archive: Archive, engines: Engines, run_id: str, step: int, edited: str | None
) -> tuple[RunFacts, StoredContext]:
    """Fork a run; mistakes are found before anything is created."""
    run = _run_file(archive, run_id)
    facts = archive.facts(run)
    engines.check(facts)
    context = archive.context_of(facts)
    new = fork(archive, run, step, edited)
    return archive.facts(_run_file(archive, new)), context


def _run_file(archive: Archive, run_id: str) -> RunFile:
    """Return the journal of the run with this id."""
    for run in archive.places.listed():
        if run.run_id == run_id:
            return run
    raise Unknown("only root runs with a journal here can be forked")
