"""The journals of a folder: find, summarize, fork, remove and expire runs."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rlm.calls.billing import FREE, checked_usage
from rlm.calls.scope import new_run_id
from rlm.context import StoredContext
from rlm.errors import ConfigError
from rlm.limits import Amount, amount_of
from rlm.messages import KEPT, Reply, ReplyKey, Usage, total_of
from rlm.records.journal import database
from rlm.records.journal.contexts import ContextFolder
from rlm.records.journal.facts import ContextFacts, Origin, RunFacts, RunStatus, answered_in
from rlm.records.journal.journal import Journal, text_in
from rlm.records.journal.places import Places, RunFile
from rlm.results import RunResult, Shown, StopReason

__all__ = [
    "Archive",
    "Retention",
    "RunSummary",
    "converted",
    "counted_in",
    "facts_of",
    "fork",
    "paid_in",
]

SMALL_CONTEXT_BYTES = 1 << 20
"""Larger contexts are written in a thread during the run's first steps."""

PRUNE_SECONDS = 3_600
ROOT = "root"
T = TypeVar("T")
_log = logging.getLogger("rlm")


class Retention(Struct, frozen=True):
    """How much to keep; the oldest runs are removed first, and contexts with their last run."""

    runs: int = 1_000
    days: float = 30.0
    size_bytes: int = 10 << 30


class RunSummary(Struct, frozen=True, kw_only=True):
    """One run, as shown in a list of runs."""

    run_id: str
    status: RunStatus
    query: str
    model: str
    started: float
    seconds: float | None
    steps: int
    requests: int
    tokens: int
    cost_usd: float | None
    context_bytes: int
    answer: str | None = None
    forked_from: str | None = None


class _End(Struct, frozen=True, kw_only=True):
    """The fields of a run's last event that a list shows."""

    stop_reason: StopReason
    usage: Usage
    seconds: float
    steps: int
    answer: str | None

    def __post_init__(self) -> None:
        if checked_usage(self.usage) is None:
            raise ValueError("its usage is not possible")


class Archive:
    """The runs below one root folder."""

    def __init__(self, places: Places, retention: Retention | None = None) -> None:
        self.places = places
        self.contexts = ContextFolder(places.contexts)
        self._retention = retention or Retention()

    # -- running -----------------------------------------------------------------------------

    async def open(self, facts: RunFacts, context: StoredContext) -> Journal:
        """Open the journal of a new run, or of one that continues."""
        self.places.prepare()
        journal = Journal(self.places.journal_of(facts.run_id))
        try:
            facts = await _describe(journal, facts, context)
            small = context.size_bytes <= SMALL_CONTEXT_BYTES and not context.pictures
            if small:
                self._keep(journal, context)
            if not small or self._is_pruning_due():
                work = self._work_beside(journal, facts, None if small else context)
                journal.beside = asyncio.create_task(work)
        except BaseException:
            journal.close()
            raise
        return journal

    def _keep(self, journal: Journal, context: StoredContext) -> None:
        """Write a context; a run that cannot store its context continues without it."""
        try:
            self.contexts.put(context)
        except ConfigError as error:
            journal.problem = str(error)
            _log.warning("%s", error)

    async def _work_beside(
        self, journal: Journal, facts: RunFacts, context: StoredContext | None
    ) -> None:
        """Do slow work in threads during the run. Replies are stored once the hash is known."""
        if context is not None and not facts.context.sha256:
            try:
                sha256 = await asyncio.wrap_future(context.hashing())
                journal.describe(run=_with_hash(facts, sha256))
            except ConfigError as error:
                journal.problem, context = str(error), None
                _log.warning("%s; the run continues, but can't be resumed", error)
            finally:
                journal.is_described.set()
        await asyncio.to_thread(self._keep_and_prune, journal, context)

    def _keep_and_prune(self, journal: Journal, context: StoredContext | None) -> None:
        if context is not None:
            self._keep(journal, context)
        if self._is_pruning_due():
            with suppress(OSError):
                self._stamp.touch(0o600)
            self.prune()

    def context_of(self, facts: RunFacts) -> StoredContext:
        """Return the context of a run, as it was passed in."""
        return self.contexts.restore(facts.context)

    # -- looking -----------------------------------------------------------------------------

    def facts(self, run: RunFile) -> RunFacts:
        """Return what was asked; raise ConfigError if the journal does not say."""
        return converted(self._about(run.path).get("run"), RunFacts)

    def answered(self, run: RunFile) -> RunResult | None:
        """Return the result of a run that has an answer, without its events."""
        return answered_in(self._about(run.path))

    def summaries(self) -> Iterator[RunSummary | ConfigError]:
        """Yield every run, newest first; for one that cannot be read, the reason."""
        for run in self.places.listed():
            try:
                yield self.summary(run)
            except ConfigError as error:
                yield error

    def summary(self, run: RunFile) -> RunSummary:
        about = self._about(run.path)
        facts = converted(about.get("run"), RunFacts)
        end = None if about.get("end") is None else converted(about["end"], _End)
        steps, usage = (
            (_steps_in(run.path), paid_in(run.path)) if end is None else (end.steps, end.usage)
        )
        is_running = database.Lock(run.path.with_suffix(".lock")).is_taken()
        so_far: RunStatus = "running" if is_running else "interrupted"
        config = facts.settings.get("config")
        return RunSummary(
            run_id=facts.run_id,
            status=so_far if end is None else end.stop_reason,
            query=facts.query,
            model=str(config.get("model", "")) if isinstance(config, dict) else "",
            started=facts.started,
            seconds=None if end is None else end.seconds,
            steps=steps,
            requests=usage.requests,
            tokens=usage.total_tokens,
            # Without a step, no request was begun: one in flight may cost something.
            cost_usd=usage.cost_usd if steps or usage.requests or end is None else 0.0,
            context_bytes=facts.context.size_bytes,
            answer=None if end is None else end.answer,
            forked_from=facts.forked_from.run_id if facts.forked_from else None,
        )

    def _about(self, path: Path) -> dict[str, Any]:
        with database.reading(path) as connection:
            return database.facts_in(connection, path)

    # -- letting go --------------------------------------------------------------------------

    def remove(self, run: RunFile) -> None:
        """Delete a run; raise ConfigError if it is in progress."""
        lock = database.Lock(run.path.with_suffix(".lock"))
        if not lock.take():
            raise ConfigError(
                f"process {lock.holder()} is executing run {run.run_id}; end it first"
            )
        try:
            run.remove()
            self._forget(run)
        finally:
            lock.release()

    def _forget(self, run: RunFile) -> None:
        """Remove a run's texts from search indexes, and what people said about it."""
        from rlm.records.judging.judgments import Judgments
        from rlm.records.searching.index import forget_everywhere

        forget_everywhere(self.places.root, run.path)
        with suppress(ConfigError):  # The run is gone, whatever is wrong with that file.
            Judgments(self.places.root).forget([run.run_id])

    def prune(self) -> list[str]:
        """Remove expired runs and unused contexts; return the ids of the removed runs."""
        removed = []
        for run in self._outdated():
            with suppress(ConfigError):
                self.remove(run)
                removed.append(run.run_id)
        self.collect()
        return removed

    def collect(self) -> None:
        """Remove contexts and pictures that no run uses."""
        named: set[str] = set()
        for run in self.places.listed():
            with suppress(ConfigError):
                context = self.facts(run).context
                named |= {context.sha256, *context.pictures.values()}
        self.contexts.remove_unnamed(named)

    def _outdated(self) -> Iterator[RunFile]:
        oldest = time.time() - self._retention.days * 86_400
        size, seen = 0, set[str]()
        for number, run in enumerate(self.places.listed()):
            size += run.size_bytes
            with suppress(ConfigError):
                context = self.facts(run).context
                size += 0 if context.sha256 in seen else context.size_bytes
                seen.add(context.sha256)
            too_many = number >= self._retention.runs or size > self._retention.size_bytes
            if too_many or run.changed < oldest:
                yield run

    @property
    def _stamp(self) -> Path:
        return self.places.root / "pruned"

    def _is_pruning_due(self) -> bool:
        """Return whether pruning is due: examining all runs takes time."""
        try:
            return time.time() - self._stamp.stat().st_mtime > PRUNE_SECONDS
        except OSError:
            return True


async def _describe(journal: Journal, facts: RunFacts, context: StoredContext) -> RunFacts:
    """Return the facts of a new run, or of a run that continues; that must be asked the same."""
    known = journal.facts().get("run")
    if known is None:
        journal.describe(run=facts)
        if not facts.context.sha256:
            journal.is_described.clear()
        return facts
    recorded = converted(known, RunFacts)
    facts = _with_hash(facts, await asyncio.wrap_future(context.hashing()))
    recorded.check_same(facts)
    if not recorded.context.sha256:  # It was killed before it was hashed or stored any reply.
        journal.forget_shown()
        recorded = replace(recorded, context=facts.context)
        journal.describe(run=recorded)
    if (updated := _with_limits_of(recorded, facts)) != recorded:
        journal.describe(run=updated)
    return updated


def _with_limits_of(recorded: RunFacts, now: RunFacts) -> RunFacts:
    """Return the facts with today's limits, which the next execution starts from."""
    old, new = recorded.settings.get("config"), now.settings.get("config")
    if not isinstance(old, dict) or not isinstance(new, dict) or "limits" not in new:
        return recorded
    config = {**old, "limits": new["limits"]}
    return replace(recorded, settings={**recorded.settings, "config": config})


def _with_hash(facts: RunFacts, sha256: str) -> RunFacts:
    return replace(facts, context=replace(facts.context, sha256=sha256))


def facts_of(context: StoredContext) -> ContextFacts:
    """Return what a journal stores about a context; the hash of a large one may follow."""
    pictures = {name: picture.sha256 for name, picture in context.pictures.items()}
    return ContextFacts(
        context.kind,
        context.known_sha256 or "",
        context.size_bytes,
        context.description,
        context.documents,
        pictures,
        context.name,
        None if context.source is None else context.source.spec,
    )


def converted(value: Any, kind: type[T]) -> T:
    """Convert a fact from a journal back; raise ConfigError if it does not fit."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the journal does not record what was run: {error}") from error


def paid_in(path: Path) -> Usage:
    """Return what was paid for before the process was killed, and will not be paid for again."""
    return total_of(usage for key, usage in _usages_in(path) if key.kind != KEPT)


def counted_in(path: Path) -> Amount:
    """Return what the limits of a run count when it continues.

    This is what was paid for, and what failed requests may have cost.
    """
    return sum((amount_of(usage) for _, usage in _usages_in(path)), Amount())


def _usages_in(path: Path) -> list[tuple[ReplyKey, Usage]]:
    with database.reading(path) as connection:
        replies = database.replies_in(connection)
        # The cost of a child is stored with its own replies.
        found = {str(key): (key, reply.usage) for *_, key, reply in replies if key.kind != "child"}
        return [(key, usage) for key, usage in found.values() if usage is not None]


def _steps_in(path: Path) -> int:
    """Return the number of answered steps."""
    with database.reading(path) as connection:
        keys = (key for *_, key, _ in database.replies_in(connection))
        return max((key.step for key in keys if (key.kind, key.path) == ("step", ROOT)), default=0)


def fork(archive: Archive, run: RunFile, step: int, edited: str | None = None) -> str:
    """Create a run that branches off another at `step`; return its id. Continue it like any other.

    With `edited`, that text is the reply of the step; otherwise the model is asked again. The other
    run paid for the earlier steps, so here they are free.
    """
    run.check_writer()
    facts = archive.facts(run)
    if facts.in_chat:
        raise ConfigError(f"run {run.run_id} was a turn of a chat whose variables are gone")
    steps = _Steps(run)
    if not 1 <= step <= steps.last:
        steps_text = "step 1" if steps.last == 1 else f"steps 1 to {steps.last}"
        raise ConfigError(f"run {run.run_id} can be forked at {steps_text}, not at {step}")
    run_id = new_run_id()
    journal = Journal(archive.places.journal_of(run_id))
    try:
        journal.describe(
            run=replace(
                facts, run_id=run_id, started=time.time(), forked_from=Origin(facts.run_id, step)
            )
        )
        for key, reply in steps.replies_before(step):
            journal.copy(key, reply)
        for at, what, shown in steps.shown_before(step):
            journal.copy_shown(ROOT, at, what, shown)
        if edited is not None:
            journal.copy(steps.key_of(step), Reply(text=edited, usage=FREE))
        if journal.problem is not None:
            raise ConfigError(journal.problem)
    except BaseException:
        journal.close()
        archive.remove(RunFile(run_id, journal.path, 0, 0))
        raise
    journal.close()
    return run_id


class _Steps:
    """The steps of the other root run, as stored in its journal."""

    def __init__(self, run: RunFile) -> None:
        self._run = run
        with database.reading(run.path) as connection:
            replies = {
                str(key): (key, reply)
                for *_, key, reply in database.replies_in(connection)
                if (key.path == ROOT or key.kind == "child") and key.kind != KEPT
            }
            rows = connection.execute(
                "select step, what, text, outputs from told where path = ?", (ROOT,)
            ).fetchall()
        try:
            self._replies = list(replies.values())
            self._shown = [
                (at, what, Shown(text_in(ROOT, at, what, text), given))
                for at, what, text, given in rows
            ]
            over = [step for step, what, _ in self._shown if what == "observation"]
            self.last = max(over, default=0) + 1
        except (ValueError, TypeError, AttributeError) as error:
            raise database.damaged(run.path, error) from error

    def replies_before(self, step: int) -> list[tuple[ReplyKey, Reply]]:
        """Return replies, tool results and answers of children from the earlier steps."""
        found = []
        for key, reply in self._replies:
            own = ROOT in {key.path, key.path.rpartition("/")[0]}
            # A history is compacted at the beginning of a step, before its reply.
            if own and (key.step < step or (key.step == step and key.kind == "compaction")):
                reply = replace(reply, usage=FREE)
                if key.kind == "child":
                    calls = reply.opaque["used"][0]
                    reply = replace(reply, opaque={"used": [calls, 0, 0], "usage": []})
                found.append((key, reply))
        return found

    def shown_before(self, step: int) -> list[tuple[int, str, Shown]]:
        return [
            each
            for each in self._shown
            if each[0] < step or (each[0] == step and each[1] == "compaction")
        ]

    def key_of(self, step: int) -> ReplyKey:
        """Return the key of a step's reply; the first, if there were two attempts."""
        found = [
            (reply.finish_reason != "length", key)
            for key, reply in self._replies
            if (key.path, key.kind, key.step) == (ROOT, "step", step)
        ]
        if not found:
            raise ConfigError(
                f"step {step} of run {self._run.run_id} has no reply that can be edited; fork it "
                "without an edit, or resume it"
            )
        return min(found, key=lambda each: each[0])[1]
