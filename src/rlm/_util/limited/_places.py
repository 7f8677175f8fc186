"""Places for jobs: at most N at once, of which no owner holds more than half."""

import threading
from collections import Counter, deque
from concurrent.futures import Future

__all__ = ["Places"]


class Places:
    """Waiting is done on a future, so threads and coroutines can stand in one queue."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._waiting: deque[tuple[str, Future[None]]] = deque()

    def enter(self, owner: str) -> "Future[None]":
        """A future that is done once a place is held; cancel it to leave the queue."""
        place: Future[None] = Future()
        with self._lock:
            self._waiting.append((owner, place))
            self._grant()
        return place

    def leave(self, owner: str) -> None:
        with self._lock:
            self._held[owner] -= 1
            if not self._held[owner]:
                del self._held[owner]
            self._grant()

    def abandon(self, owner: str, place: "Future[None]") -> None:
        """Stop waiting; if the place was granted in this very moment, pass it on."""
        if not place.cancel():
            self.leave(owner)

    def _grant(self) -> None:
        passed_over: deque[tuple[str, Future[None]]] = deque()
        while self._waiting and self._held.total() < self._most:
            owner, place = self._waiting.popleft()
            if owner and self._held[owner] >= max(1, self._most // 2):
                passed_over.append((owner, place))
            elif place.set_running_or_notify_cancel():
                self._held[owner] += 1
                place.set_result(None)
        self._waiting.extendleft(reversed(passed_over))
