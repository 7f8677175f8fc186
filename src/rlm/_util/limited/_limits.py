"""What one job may use, how many jobs run at once, and how an exceeded limit is reported."""

import threading
from collections import Counter, deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

__all__ = ["JobLimits", "JobSlots", "JobStopped", "Reason"]

Reason = Literal["time", "memory", "output", "crash"]


@dataclass(frozen=True)
class JobLimits:
    """The limits of one job; `seconds` limits its processor time too."""

    seconds: float = 10.0
    memory_bytes: int = 512 << 20
    output_bytes: int = 64 << 20


class JobStopped(Exception):
    """A job has no result: a limit was exceeded (`reason`), or it failed in its process."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


class JobSlots:
    """Slots for `most` jobs at once, of which no owner gets more than half.

    Each waits for a future, so that threads and coroutines can wait in one queue.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._waiting: deque[tuple[str, Future[None]]] = deque()

    def enter(self, owner: str) -> "Future[None]":
        """Return a future that is done once a slot is held; cancel it to leave the queue."""
        slot: Future[None] = Future()
        with self._lock:
            self._waiting.append((owner, slot))
            self._grant()
        return slot

    def leave(self, owner: str) -> None:
        with self._lock:
            self._held[owner] -= 1
            if not self._held[owner]:
                del self._held[owner]
            self._grant()

    def abandon(self, owner: str, slot: "Future[None]") -> None:
        """Stop waiting; if the slot was granted at the same moment, pass it on."""
        if not slot.cancel():
            self.leave(owner)

    def _grant(self) -> None:
        passed_over: deque[tuple[str, Future[None]]] = deque()
        while self._waiting and self._held.total() < self._most:
            owner, slot = self._waiting.popleft()
            if owner and self._held[owner] >= max(1, self._most // 2):
                passed_over.append((owner, slot))
            elif slot.set_running_or_notify_cancel():
                self._held[owner] += 1
                slot.set_result(None)
        self._waiting.extendleft(reversed(passed_over))
