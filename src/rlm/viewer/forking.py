"""Forks made from the page: the new run goes on in this process, and is watched like any other."""

import asyncio
import logging
from typing import Protocol

from rlm.context import StoredContext
from rlm.errors import ConfigError, RLMError
from rlm.records.journal import Archive, RunFacts, RunFile, fork
from rlm.viewer.library import Unknown
from rlm.viewer.work import Busy, Work

__all__ = ["Engines", "Forks"]

MOST_RUNNING = 4
MOST_EDIT_CHARS = 2_000_000
_log = logging.getLogger("rlm")


class Engines(Protocol):
    """Makes the engine of a recorded run again: whoever starts the viewer knows how."""

    def check(self, facts: RunFacts) -> None:
        """ConfigError if this run can't go on here: a key is missing, or its program."""

    async def go_on(self, facts: RunFacts, context: StoredContext) -> None:
        """Run it to its end."""


class Forks:
    """Of one server. What was started here ends with it, and can be resumed."""

    def __init__(self, archive: Archive | None, engines: Engines | None, work: Work) -> None:
        self._archive = archive
        self._engines = engines
        self._work = work
        self._running: set[asyncio.Task[None]] = set()

    @property
    def why_not(self) -> str | None:
        """Why nothing can be forked here, if so."""
        if self._archive is None or self._engines is None:
            return (
                "only journaled runs can be forked: start the viewer with `rlm view`, or with RUN"
            )
        return None

    async def start(self, run_id: str, step: int, edited: str | None) -> str:
        """Make a new run and let it go on; its id."""
        if self._archive is None or self._engines is None:
            raise ConfigError(str(self.why_not))
        if edited is not None and len(edited) > MOST_EDIT_CHARS:
            raise ConfigError(f"a reply may have {MOST_EDIT_CHARS:,} characters, no more")
        if len(self._running) >= MOST_RUNNING:
            raise Busy(f"{MOST_RUNNING} runs of this viewer are going on; wait for one of them")
        facts, context = await self._work.run(
            _made, self._archive, self._engines, run_id, step, edited
        )
        task = asyncio.create_task(self._go_on(self._engines, facts, context))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return facts.run_id

    async def _go_on(self, engines: Engines, facts: RunFacts, context: StoredContext) -> None:
        try:
            await engines.go_on(facts, context)
        except RLMError as error:  # The run's own events tell the page.
            _log.warning("run %s, forked in the viewer: %s", facts.run_id, error)

    async def close(self) -> None:
        """End what goes on."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _made(
    archive: Archive, engines: Engines, run_id: str, step: int, edited: str | None
) -> tuple[RunFacts, StoredContext]:
    """What can be wrong is found before anything is made."""
    run = _run_file(archive, run_id)
    facts = archive.facts(run)
    engines.check(facts)
    context = archive.context_of(facts)
    new = fork(archive, run, step, edited)
    return archive.facts(_run_file(archive, new)), context


def _run_file(archive: Archive, run_id: str) -> RunFile:
    """By its whole id, from the list of what there is."""
    for run in archive.places.listed():
        if run.run_id == run_id:
            return run
    raise Unknown("only root runs that are journaled here can be forked")
