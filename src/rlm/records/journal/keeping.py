"""The journal of one run, open while the run lasts. Runs without a journal use the same code."""

import os
import shlex
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from rlm._util.slow_numbers import decode_with
from rlm.calls.scope import new_run_id
from rlm.engine.task import Task
from rlm.errors import ConfigError
from rlm.events import Event
from rlm.protocols import Recorder
from rlm.results import RunResult

if TYPE_CHECKING:  # Runs without a journal need none of these.
    from rlm.records.journal.archive import Archive
    from rlm.records.journal.journal import Journal

__all__ = ["Record", "how_to_continue", "journaled_run"]


class Record:
    """What is known of a run before it starts. `result` is set if it already has an answer.

    `environment` is the one in which it began; None without a journal.
    """

    def __init__(self, run_id: str, journal: "Journal | None" = None) -> None:
        self.run_id = run_id
        self.journal = journal
        facts: dict[str, Any] = {} if journal is None else journal.facts()
        self.result = None if journal is None else _stored_answer(journal, facts)
        self.environment: str | None = facts.get("run", {}).get("settings", {}).get("environment")

    @property
    def recorders(self) -> tuple[Recorder, ...]:
        return () if self.journal is None else (self.journal,)

    @property
    def path(self) -> str | None:
        """The file of the journal."""
        return None if self.journal is None else str(self.journal.path)

    @asynccontextmanager
    async def stoppable(self, stop: Callable[[], None]) -> AsyncGenerator[None, None]:
        """Call `stop` if another process, such as the viewer, asks for it before the block ends."""
        if self.journal is None:
            yield
            return
        from rlm.records.journal.stopping import stop_requests

        async with stop_requests(self.journal.path, stop):
            yield

    def keep(self, result: RunResult) -> None:
        if self.journal is not None:
            from rlm.records.journal.facts import result_facts

            self.journal.describe(result=result_facts(result))


@asynccontextmanager
async def journaled_run(
    archive: "Archive | None", task: Task, run_id: str | None, *, in_chat: bool
) -> AsyncGenerator[Record, None]:
    """Begin a run, or find what is stored of it; its replies are on disk before they are used.

    A new run that is refused before it begins, such as for an unknown price, leaves no file.
    """
    if archive is None:
        if run_id is not None:
            raise ConfigError("run_id= names a run in a journal: set journal=True as well")
        yield Record(new_run_id())
        return
    from rlm.records.journal.archive import facts_of
    from rlm.records.journal.facts import RunFacts

    facts = RunFacts(
        run_id=new_run_id() if run_id is None else run_id,
        query=task.query,
        started=time.time(),
        context=facts_of(task.context),
        settings=dict(task.settings),
        in_chat=in_chat,
    )
    is_new = not archive.places.journal_of(facts.run_id).exists()
    journal = await archive.open(facts, task.context)
    was_refused = False
    try:
        record = Record(facts.run_id, journal)
        if record.result is None:
            journal.forget("end", "result")
        yield record
    except BaseException:
        was_refused = is_new and not journal.has_events
        raise
    finally:
        await journal.aclose()
        if was_refused:
            archive.places.remove(facts.run_id)


def how_to_continue(journal: Path) -> str:
    """Return the command that continues the run of a journal, whichever folder that is in."""
    from rlm.records.journal.places import Places

    command, folder = f"rlm resume {journal.stem}", journal.parent.parent
    with suppress(RuntimeError):  # raised by `pathlib` when there is no home
        if folder == Places.usual(os.environ).root:
            return f"Continue with: {command}"
    return f"Continue with: RLM_STATE_DIR={shlex.quote(str(folder))} {command}"


def _stored_answer(journal: "Journal", facts: dict[str, Any]) -> RunResult | None:
    from rlm.records.journal.facts import answered_in

    result = answered_in(facts)
    return None if result is None else replace(result, events=tuple(_events(journal.path)))


def _events(path: Path) -> Iterator[Event]:
    """Return the events of the last execution; unreadable ones do not hide an answer."""
    from rlm.records.journal.journal import events_of

    read: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
    for line in events_of(path, last_only=True):
        with suppress(ValueError, RecursionError):
            yield decode_with(read, line)
