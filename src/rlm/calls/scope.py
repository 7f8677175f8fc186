"""Where in a run tree something happens: ids, depth, step, budget, recorders and known replies."""

import asyncio
import hashlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlm.calls.billing import ReportedPrefix
from rlm.errors import CallRefused, ModelError
from rlm.events import Event
from rlm.limits import Amount, Budget, Limits, Reservation, usage_of
from rlm.messages import Reply, ReplyKey, Request, Usage
from rlm.protocols import Recorder, ReplyStore
from rlm.results import Shown

if TYPE_CHECKING:  # Imported where they are used: few programs use them.
    from rlm.calls.paid_earlier import PaidEarlier
    from rlm.citations import Citations

__all__ = ["SavedReplies", "Scope", "Tree", "error_of", "failed", "new_run_id"]

log = logging.getLogger("rlm")


def new_run_id() -> str:
    """Return a unique id that sorts by time to the millisecond and is easy to read."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return f"{stamp}-{int(now % 1 * 1000):03}-{os.urandom(4).hex()}"


class Tree:
    """What all runs of one tree share besides the budget.

    These are its events, slots for live child sessions, and the store of earlier executions.
    """

    def __init__(
        self,
        max_child_sessions: int,
        store: ReplyStore | None = None,
        models: tuple[str, str] = ("", ""),
    ) -> None:
        self._max_child_sessions = max_child_sessions
        self.store = store
        self.paid_earlier = None if store is None else _paid_earlier(store, models)
        self.events: list[Event] = []
        self._slots: dict[int, asyncio.Semaphore] = {}
        self.child_context_bytes = 0

    def count_child_context(self, size_bytes: int, limits: Limits) -> None:
        """Count the context of a child run; refuse it if their total would be too large."""
        if self.child_context_bytes + size_bytes > limits.max_child_context_bytes:
            raise CallRefused(
                f"the contexts of child runs can have at most {limits.max_child_context_bytes:,} "
                "bytes in total (max_child_context_bytes); pass smaller pieces",
                limit="child_context_bytes",
            )
        self.child_context_bytes += size_bytes

    def child_slot(self, depth: int) -> asyncio.Semaphore:
        """Return the semaphore of a depth; one per depth, so that children can't deadlock."""
        return self._slots.setdefault(depth, asyncio.Semaphore(self._max_child_sessions))


def _paid_earlier(store: ReplyStore, models: tuple[str, str]) -> "PaidEarlier":
    from rlm.calls.paid_earlier import PaidEarlier

    return PaidEarlier(store, models)


class Scope:
    """The position of one run in its tree. `path` is the same on every execution."""

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
        self._origin: dict[str, Any] = {
            "run_id": run_id,
            "parent_id": self.parent_id,
            "depth": self.depth,
        }
        self.budget = budget
        self.recorders = recorders
        self.tree = tree
        self.path = path
        self.step = 0
        self.citations: Citations | None = None
        """Collects what the run cites; its cells reach it through their bridge."""
        self.cell = 0
        """The number of the cell that runs, or ran last; 0 before the first cell of the run."""
        self.report_reads: Callable[[], None] = lambda: None
        """Emits the data that cells have read since it was last called."""
        self.sample: int = parent.sample if parent else 0
        """Which of several runs of one query it belongs to; these share no cached replies."""
        self.reported = ReportedPrefix()
        self._seen: dict[str, int] = {}
        self._paid = SavedReplies()
        self._in_cell = SavedReplies()
        self._saved = SavedReplies()

    def key(self, kind: str, digest: str) -> ReplyKey:
        """Return a new key for a request; equal requests get different numbers."""
        number = self._seen.get(digest, 0)
        self._seen[digest] = number + 1
        return ReplyKey(self.path, digest, number, kind, self.step)

    def call_id(self, key: ReplyKey) -> str:
        return f"{self.run_id}.{key.digest[:10]}.{key.number}"

    def child(self, budget: Budget, digest: str) -> "Scope":
        """Return the scope of a child run; path and id depend on its task, not on the time."""
        path = f"{self.path}/{digest}.{self.key('rlm', digest).number}"
        child = Scope(
            run_id=f"{self.root_id}-{hashlib.sha256(path.encode()).hexdigest()[:10]}",
            budget=budget,
            recorders=self.recorders,
            tree=self.tree,
            parent=self,
            path=path,
        )
        child._saved = self._saved.take_child(digest)
        self._in_cell.add_child(digest, child._paid)
        return child

    @property
    def needs_context_hash(self) -> bool:
        """Whether a recorder wants the hash even of a context too large to be hashed at once."""
        return any(getattr(each, "needs_context_hash", False) for each in self.recorders)

    @property
    def wants_pieces(self) -> bool:
        """Whether a listener wants the answer of this run piece by piece."""
        return not self.depth and any(getattr(r, "wants_pieces", False) for r in self.recorders)

    # -- cells whose session is lost ---------------------------------------------------------

    def begin_cell(self) -> None:
        self._in_cell = SavedReplies()

    def lose_cell(self) -> None:
        """Save the replies of a cell that was lost, for equal requests after it."""
        self._saved.add_all(self._in_cell)
        self.begin_cell()

    def note(self, key: ReplyKey, reply: Reply) -> None:
        """Note a reply that was paid for."""
        self._in_cell.add(key.digest, reply)
        if self.parent_id is not None:  # The cell that started this run may be lost too.
            self._paid.add(key.digest, reply)

    def take_saved(self, key: ReplyKey) -> Reply | None:
        """Return the reply that a lost cell got to an equal request; it is already counted."""
        return self._saved.take(key.digest)

    # -- earlier executions ------------------------------------------------------------------

    @property
    def has_store(self) -> bool:
        """Whether replies are stored for later executions."""
        return self.tree.store is not None

    async def recall(self, key: ReplyKey, request: Request | None = None) -> Reply | None:
        """Return the stored reply of an earlier execution, if there is one."""
        store = self.tree.store
        return None if store is None else await store.get(key, request)

    def count_unrecalled(self) -> None:
        """Count what earlier executions paid for, before anything new is paid for."""
        if self.tree.paid_earlier is not None:
            self.tree.paid_earlier.count_all(self.budget.root)

    def count_recalled(self, key: ReplyKey, model: str, usage: Usage) -> None:
        """Count a reply that an earlier execution paid for."""
        if self.tree.paid_earlier is not None:
            self.tree.paid_earlier.count(self.budget, key, model, usage)

    def count_rest(self) -> None:
        """Count what earlier executions of this run, which ends, paid for."""
        if self.tree.paid_earlier is not None:
            self.tree.paid_earlier.count_rest(self.budget, self.path)

    def count_ended(self, used: Amount, usage: dict[tuple[str, int], Usage]) -> None:
        """Count what this run used; it ended in an earlier execution."""
        if self.tree.paid_earlier is not None:
            self.tree.paid_earlier.count_ended(self.budget, self.path, used, usage)

    async def remember(self, key: ReplyKey, reply: Reply) -> None:
        """Store a reply before it is used."""
        if self.tree.store is not None:
            await self.tree.store.put(key, reply)

    def remember_kept(self, key: ReplyKey, reservations: Sequence[Reservation]) -> None:
        """Store what requests without a reply may have cost, for the limits of later executions."""
        if self.tree.store is not None:
            for each in reservations:
                if each.was_kept:
                    self.tree.store.keep(key, usage_of(each.amount))

    async def recorded(self, what: str) -> Shown | None:
        """Return what the model was shown at this step of an earlier execution."""
        store = self.tree.store
        return None if store is None else await store.recorded(self.path, self.step, what)

    async def show(self, what: str, text: str, outputs: str = "") -> str:
        """Store a text for the model and return it; a stored one takes precedence."""
        if (known := await self.recorded(what)) is not None:
            return known.text
        if self.tree.store is None:
            return text
        return await self.tree.store.show(self.path, self.step, what, Shown(text, outputs))

    def emit(self, event_type: type[Event], /, **facts: Any) -> None:
        """Record an event, and send it to every recorder; a failing recorder never ends a run."""
        event = event_type(**self._origin, step=self.step, **facts)
        self.tree.events.append(event)
        if self.recorders:
            self._send(event, self.recorders)

    async def catch_up(self) -> None:
        """Wait for slow recorders before paying for the next request."""
        for recorder in self.recorders:
            if (wait := getattr(recorder, "catch_up", None)) is not None:
                await wait()

    def emit_live(
        self, event_type: type[Event], listeners: Sequence[Recorder], /, **facts: Any
    ) -> None:
        """Send an event only to some recorders, without storing it."""
        self._send(event_type(**self._origin, step=self.step, **facts), listeners)

    def _send(self, event: Event, recorders: Sequence[Recorder]) -> None:
        for recorder in recorders:
            try:
                recorder.record(event)
            except Exception:  # the plugin boundary: listeners are the caller's code
                log.exception("recorder %r failed on %s", recorder, type(event).__name__)


class SavedReplies:
    """Replies paid for by cells, by request, and those of child runs, by their task.

    When a session is lost, the variables of its cell are gone, and most models run the cell again
    with the same calls, which are then answered from here. Every reply is added but hardly any is
    taken, so they are indexed only when one is taken.
    """

    def __init__(self) -> None:
        self._added: list[tuple[str, Reply | SavedReplies]] = []
        self._replies: dict[str, deque[Reply]] = {}
        self._children: dict[str, deque[SavedReplies]] = {}

    def add(self, digest: str, reply: Reply) -> None:
        self._added.append((digest, reply))

    def add_child(self, digest: str, child: "SavedReplies") -> None:
        """Add the replies that a child run has got so far and will get."""
        self._added.append((digest, child))

    def add_all(self, other: "SavedReplies") -> None:
        """Add everything that has not been taken from `other`."""
        for kept in (other._replies, other._children):
            self._added += [(digest, each) for digest, many in kept.items() for each in many]
        self._added += other._added

    def take(self, digest: str) -> Reply | None:
        """Remove and return a reply to this request."""
        if self._added:
            self._index()
        replies = self._replies.get(digest)
        return replies.popleft() if replies else None

    def take_child(self, digest: str) -> "SavedReplies":
        """Remove and return the replies of a child run with this task; empty if there are none."""
        self._index()
        children = self._children.get(digest)
        return children.popleft() if children else SavedReplies()

    def _index(self) -> None:
        for digest, each in self._added:
            if isinstance(each, Reply):
                self._replies.setdefault(digest, deque()).append(each)
            else:
                self._children.setdefault(digest, deque()).append(each)
        self._added.clear()


def failed(error: Exception, opaque: dict[str, Any] | None = None) -> Reply:
    """Return a reply that stores an error."""
    limit = error.limit if isinstance(error, CallRefused) else None
    details = {**(opaque or {}), **({"limit": limit} if limit else {})}
    return Reply(text=str(error), finish_reason="failed", opaque=details or None)


def error_of(reply: Reply) -> ModelError | CallRefused:
    """Return the error that `failed` stored, or one with the same message."""
    limit = reply.opaque.get("limit") if isinstance(reply.opaque, dict) else None
    return ModelError(reply.text) if limit is None else CallRefused(reply.text, limit=limit)
