"""Runs that the page starts: forks, and recorded runs that continue, in the viewer's process."""

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from rlm.context import StoredContext
from rlm.errors import ConfigError, RLMError
from rlm.records.journal import Archive, RunFacts, RunFile, fork
from rlm.viewer.library import Busy, Threads, Unknown

__all__ = ["ONLY_HERE", "Engines", "Forks", "run_file"]

MAX_RUNNING = 4
MAX_EDIT_CHARS = 2_000_000
IN_PROGRESS = "this run is in progress"
ONLY_HERE = (
    "only journaled runs can be {}: on the machine that ran them, start `rlm view` without a "
    "file, or with RUN"
)
_log = logging.getLogger("rlm")


class Engines(Protocol):
    """Recreates the engine of a recorded run."""

    def check(self, facts: RunFacts) -> None:
        """Raise ConfigError if this run can't continue here, perhaps because a key is missing."""

    async def go_on(self, facts: RunFacts, context: StoredContext) -> None:
        """Continue the run to its end."""


class Forks:
    """The forked and resumed runs of one viewer. They end with it, and can be resumed."""

    def __init__(self, archive: Archive | None, engines: Engines | None, threads: Threads) -> None:
        self._archive = archive
        self._engines = engines
        self._threads = threads
        self._running: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._resumed: set[str] = set()

    @property
    def why_not(self) -> str | None:
        """The reason why nothing can be forked here, or None."""
        if self._archive is None or self._engines is None:
            return ONLY_HERE.format("forked")
        return None

    @property
    def archive(self) -> Archive | None:
        """The journals that may be changed; None if the page may only read."""
        return None if self._engines is None else self._archive

    async def start(self, run_id: str, step: int, edited: str | None) -> str:
        """Fork a run, continue the new one, and return its id."""
        if self._archive is None or self._engines is None:
            raise ConfigError(str(self.why_not))
        if edited is not None and len(edited) > MAX_EDIT_CHARS:
            raise ConfigError(f"a reply may have at most {MAX_EDIT_CHARS:,} characters")
        with self._room():
            facts, context = await self._threads.run(
                _made, self._archive, self._engines, run_id, step, edited
            )
            self._begin(self._engines, facts, context)
        return facts.run_id

    async def resume(self, run_id: str) -> None:
        """Continue a recorded run that has no answer yet."""
        if self._archive is None or self._engines is None:
            raise ConfigError(str(self.why_not))
        with self._room(), self._only_once(run_id):
            found = await self._threads.run(_recorded, self._archive, self._engines, run_id)
            self._begin(self._engines, *found)

    def why_not_resume(self, run: RunFile) -> str | None:
        """Return why a run can't be continued here, or None. It blocks."""
        if self._archive is None or self._engines is None:
            return self.why_not
        try:
            _check_resumable(self._archive, self._engines, run)
        except ConfigError as error:
            return str(error)
        return None

    @contextmanager
    def _room(self) -> Generator[None, None, None]:
        """Reserve room for one more run; many may be requested at the same time."""
        if len(self._running) + self._starting >= MAX_RUNNING:
            raise Busy(f"{MAX_RUNNING} runs of this viewer are in progress; wait for one of them")
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1

    @contextmanager
    def _only_once(self, run_id: str) -> Generator[None, None, None]:
        """Refuse to continue a run a second time, until its record says that it is running."""
        if run_id in self._resumed:
            raise ConfigError(IN_PROGRESS)
        self._resumed.add(run_id)
        try:
            yield
        except BaseException:
            self._resumed.discard(run_id)
            raise

    def _begin(self, engines: Engines, facts: RunFacts, context: StoredContext) -> None:
        task = asyncio.create_task(self._go_on(engines, facts, context))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _go_on(self, engines: Engines, facts: RunFacts, context: StoredContext) -> None:
        try:
            await engines.go_on(facts, context)
        except RLMError as error:  # The page sees it in the run's own events.
            _log.warning("run %s, continued in the viewer: %s", facts.run_id, error)
        finally:
            self._resumed.discard(facts.run_id)

    async def close(self) -> None:
        """Cancel the runs that are in progress here."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _made(
    archive: Archive, engines: Engines, run_id: str, step: int, edited: str | None
) -> tuple[RunFacts, StoredContext]:
    """Fork a run; find mistakes before anything is created."""
    run = run_file(archive, run_id)
    facts = _facts_of(archive, run)
    engines.check(facts)
    context = archive.context_of(facts)
    new = fork(archive, run, step, edited)
    return archive.facts(run_file(archive, new)), context


def _facts_of(archive: Archive, run: RunFile) -> RunFacts:
    facts = archive.facts(run)
    if facts.run_id != run.run_id:
        raise ConfigError("this journal belongs to another run")
    return facts


def _recorded(archive: Archive, engines: Engines, run_id: str) -> tuple[RunFacts, StoredContext]:
    """Return what is needed to continue a run."""
    facts = _check_resumable(archive, engines, run_file(archive, run_id))
    return facts, archive.context_of(facts)


def _check_resumable(archive: Archive, engines: Engines, run: RunFile) -> RunFacts:
    """Raise ConfigError if a run has an answer, is in progress, or can't continue here."""
    run.check_writer()
    facts = _facts_of(archive, run)
    summary = archive.summary(run)
    if summary.status == "running":
        raise ConfigError(IN_PROGRESS)
    if archive.answered(run) is not None:
        raise ConfigError("this run already has its answer; fork it to try something else")
    engines.check(facts)
    return facts


def run_file(archive: Archive, run_id: str) -> RunFile:
    """Return the journal of a root run. Ids are looked up, never turned into paths."""
    for run in archive.places.listed():
        if run.run_id == run_id:
            return run
    raise Unknown("only root runs with a journal here can be changed")
