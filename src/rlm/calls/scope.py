"""Where in a run tree something happens: ids, depth, step, the budget, and who listens."""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Sequence
from typing import Any

from rlm.calls.bounds import ReportedPrefix
from rlm.calls.saved_replies import Obtained
from rlm.errors import CallRefused
from rlm.events import Event
from rlm.limits import Budget, Limits
from rlm.messages import Reply, ReplyKey, Request
from rlm.protocols import Recorder, ReplyStore
from rlm.results import Told

__all__ = ["Scope", "Tree", "new_run_id"]

log = logging.getLogger("rlm")


def new_run_id() -> str:
    """Sorts by time to the millisecond, readable in a terminal, and unique."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return f"{stamp}-{int(now % 1 * 1000):03}-{os.urandom(4).hex()}"


class Tree:
    """What all runs of one tree share besides the budget: places for live child sessions, and
    what is remembered of earlier executions.
    """

    def __init__(self, max_child_sessions: int, store: ReplyStore | None = None) -> None:
        self._max_child_sessions = max_child_sessions
        self.store = store
        self._places: dict[int, asyncio.Semaphore] = {}
        self.child_context_bytes = 0

    def count_child_context(self, size_bytes: int, limits: Limits) -> None:
        """Model-written code may start many children; together they may not fill the memory."""
        if self.child_context_bytes + size_bytes > limits.max_child_context_bytes:
            raise CallRefused(
                f"contexts of child runs may hold {limits.max_child_context_bytes:,} bytes in all "
                "(max_child_context_bytes); pass smaller pieces",
                limit="child_context_bytes",
            )
        self.child_context_bytes += size_bytes

    def child_place(self, depth: int) -> asyncio.Semaphore:
        """One pool per depth: a child waits only for its own generation, so nothing deadlocks."""
        return self._places.setdefault(depth, asyncio.Semaphore(self._max_child_sessions))


class Scope:
    """One run's place in the tree. `path` names it the same way on every execution."""

    def __init__(
        self,
        *,
        run_id: str,
        budget: Budget,
        recorders: Sequence[Recorder],
        tree: Tree,
        parent: "Scope | None" = None,
        path: str = "root",
    ) -> None:
        self.run_id = run_id
        self.parent_id = parent.run_id if parent else None
        self.root_id: str = parent.root_id if parent else run_id
        self.depth: int = parent.depth + 1 if parent else 0
        self.budget = budget
        self.recorders = recorders
        self.tree = tree
        self.path = path
        self.step = 0
        self.reported = ReportedPrefix()
        self._seen: dict[str, int] = {}
        self._obtained = Obtained()
        self._in_cell = Obtained()
        self._salvaged = Obtained()

    def key(self, kind: str, digest: str) -> ReplyKey:
        """A key for each time something is asked: equal prompts are separate samples."""
        number = self._seen.get(digest, 0)
        self._seen[digest] = number + 1
        return ReplyKey(self.path, digest, number, kind, self.step)

    def call_id(self, key: ReplyKey) -> str:
        return f"{self.run_id}.{key.digest[:10]}.{key.number}"

    def child(self, budget: Budget, digest: str) -> "Scope":
        """The place of a child run; path and id depend on what it is asked, not on when."""
        path = f"{self.path}/{digest}.{self.key('rlm', digest).number}"
        child = Scope(
            run_id=f"{self.root_id}-{hashlib.sha256(path.encode()).hexdigest()[:10]}",
            budget=budget,
            recorders=self.recorders,
            tree=self.tree,
            parent=self,
            path=path,
        )
        child._salvaged = self._salvaged.take_child(digest)
        self._in_cell.add_child(digest, child._obtained)
        return child

    @property
    def needs_context_hash(self) -> bool:
        """Whether a recorder wants the hash of a context that is too large to be hashed at once."""
        return any(getattr(each, "needs_context_hash", False) for each in self.recorders)

    # -- cells whose session is lost ---------------------------------------------------------

    def begin_cell(self) -> None:
        self._in_cell = Obtained()

    def lose_cell(self) -> None:
        """What the cell obtained is for whoever asks the same again."""
        self._salvaged.add_all(self._in_cell)
        self.begin_cell()

    def note(self, key: ReplyKey, reply: Reply) -> None:
        """A reply that was paid for."""
        self._in_cell.add(key.digest, reply)
        if self.parent_id is not None:  # The cell that started this run may be lost as well.
            self._obtained.add(key.digest, reply)

    def salvage(self, key: ReplyKey) -> Reply | None:
        """The reply to the same request in a cell that was lost; it is counted already."""
        return self._salvaged.take(key.digest)

    # -- earlier executions ------------------------------------------------------------------

    @property
    def is_kept(self) -> bool:
        """Whether anything is remembered for later executions."""
        return self.tree.store is not None

    async def recall(self, key: ReplyKey, request: Request | None = None) -> Reply | None:
        """What was answered the first time, if this is not the first time."""
        store = self.tree.store
        return None if store is None else await store.get(key, request)

    async def remember(self, key: ReplyKey, reply: Reply) -> None:
        """Commit an answer before it is used."""
        if self.tree.store is not None:
            await self.tree.store.put(key, reply)

    async def recorded(self, what: str) -> Told | None:
        """What the model was told of this step the first time."""
        store = self.tree.store
        return None if store is None else await store.recorded(self.path, self.step, what)

    async def tell(self, what: str, text: str, outputs: str = "") -> str:
        """Text for the model, remembered; where it was told before, what it was told then."""
        if (known := await self.recorded(what)) is not None:
            return known.text
        if self.tree.store is None:
            return text
        return await self.tree.store.tell(self.path, self.step, what, Told(text, outputs))

    def emit(self, event_type: type[Event], /, **facts: Any) -> None:
        """Tell every recorder. A recorder that fails is reported and never ends a run."""
        event = event_type(
            run_id=self.run_id,
            parent_id=self.parent_id,
            depth=self.depth,
            step=self.step,
            **facts,
        )
        for recorder in self.recorders:
            try:
                recorder.record(event)
            except Exception:  # the plugin border: listeners are the caller's code
                log.exception("recorder %r failed on %s", recorder, type(event).__name__)
