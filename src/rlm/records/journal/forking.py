"""A run continued from one of its steps with another reply: the steps before it are shared."""

import time

from msgspec.structs import replace

from rlm.calls.billing import FREE
from rlm.calls.scope import new_run_id
from rlm.errors import ConfigError
from rlm.messages import Reply, ReplyKey
from rlm.records.journal import database
from rlm.records.journal.archive import Archive
from rlm.records.journal.facts import Origin
from rlm.records.journal.journal import Journal, text_in
from rlm.records.journal.places import RunFile
from rlm.results import Shown

__all__ = ["fork"]

ROOT = "root"


def fork(archive: Archive, run: RunFile, step: int, edited: str | None = None) -> str:
    """Make a new run that parts from another at `step`; it is then gone on with like any other.

    With `edited`, that text is the reply of the step; without, the model is asked again. What the
    steps before it cost was paid by the other run, so here it is free. Returns the new run's id.
    """
    facts = archive.facts(run)
    if facts.in_chat:
        raise ConfigError(f"run {run.run_id} was a turn of a chat, whose variables are gone")
    steps = _Steps(run)
    if not 1 <= step <= steps.last:
        raise ConfigError(
            f"run {run.run_id} can be forked at steps 1 to {steps.last}, not at {step}"
        )
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
        for at, what, told in steps.told_before(step):
            journal.copy_told(ROOT, at, what, told)
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
    """What the journal of the other run holds of its root's steps."""

    def __init__(self, run: RunFile) -> None:
        self._run = run
        with database.reading(run.path) as connection:
            replies = {
                str(key): (key, reply)
                for *_, key, reply in database.replies_in(connection)
                if key.path == ROOT or key.kind == "child"
            }
            told = connection.execute(
                "select step, what, text, outputs from told where path = ?", (ROOT,)
            ).fetchall()
        try:
            self._replies = list(replies.values())
            self._told = [
                (at, what, Shown(text_in(ROOT, at, what, text), given))
                for at, what, text, given in told
            ]
            over = [step for step, what, _ in self._told if what == "observation"]
            self.last = max(over, default=0) + 1
        except (ValueError, TypeError, AttributeError) as error:
            raise database.damaged(run.path, error) from error

    def replies_before(self, step: int) -> list[tuple[ReplyKey, Reply]]:
        """Replies, results of tools and answers of children that the steps before had."""
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

    def told_before(self, step: int) -> list[tuple[int, str, Shown]]:
        return [
            each
            for each in self._told
            if each[0] < step or (each[0] == step and each[1] == "compaction")
        ]

    def key_of(self, step: int) -> ReplyKey:
        """Under which the reply of a step stands; of two tries, the first."""
        found = [
            (reply.finish_reason != "length", key)
            for key, reply in self._replies
            if (key.path, key.kind, key.step) == (ROOT, "step", step)
        ]
        if not found:
            raise ConfigError(
                f"step {step} of run {self._run.run_id} has no reply that could be edited; fork it "
                "without an edit, or go on with it"
            )
        return min(found, key=lambda each: each[0])[1]
