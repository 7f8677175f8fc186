"""What a fake server was asked, kept for whoever wants to check it."""

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rlm.testing.fake_server.asked import Asked

__all__ = ["Log", "Received"]

KEPT_REQUESTS = 10_000
KEPT_BYTES = 256 * 1024**2
HARMLESS = frozenset(
    {
        "accept",
        "accept-encoding",
        "anthropic-version",
        "connection",
        "content-length",
        "content-type",
        "host",
        "user-agent",
    }
)
"""Headers whose values are shown to others; any other may hold a key."""


class Received(Struct):
    """One request. `status` is None until it is answered, and if it never was.

    `disconnected`: the client went away before it was answered.
    """

    number: int
    path: str
    headers: Mapping[str, str]
    asked: Asked | None = None
    status: int | None = None
    behaviours: frozenset[str] = frozenset()
    disconnected: bool = False
    connection: int = 0
    size_bytes: int = 0

    def __repr__(self) -> str:
        return f"Received({self.number}, {self.path!r}, status={self.status})"

    def public(self) -> dict[str, Any]:
        """All of it as plain data, without the values that may be secrets."""
        asked = self.asked
        return {
            "number": self.number,
            "path": self.path,
            "headers": {
                name: value if name.lower() in HARMLESS else "[redacted]"
                for name, value in self.headers.items()
            },
            "dialect": asked and asked.dialect,
            "model": asked and asked.model,
            "stream": asked and asked.stream,
            "body": asked and asked.body,
            "status": self.status,
            "behaviours": sorted(self.behaviours),
            "disconnected": self.disconnected,
            "connection": self.connection,
        }


class Log:
    """The latest requests, and counts of all of them. Safe to read from other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[Received] = deque()
        self._kept_bytes = 0
        self.count = 0
        self.in_flight = 0
        self.max_in_flight = 0

    @property
    def requests(self) -> list[Received]:
        """The requests in the order of their arrival; of very many, the latest."""
        with self._lock:
            return list(self._kept)

    def begin(self, received: Received) -> None:
        with self._lock:
            self.count += 1
            self.in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self.in_flight)
            self._kept.append(received)
            self._kept_bytes += received.size_bytes
            while len(self._kept) > KEPT_REQUESTS or (
                self._kept_bytes > KEPT_BYTES and len(self._kept) > 1
            ):
                self._kept_bytes -= self._kept.popleft().size_bytes

    def end(self) -> None:
        with self._lock:
            self.in_flight -= 1

    def forget(self) -> None:
        """As if nothing had been asked so far; requests that are in flight stay so."""
        with self._lock:
            self._kept.clear()
            self._kept_bytes = self.count = 0
            self.max_in_flight = self.in_flight

    def public(self) -> dict[str, Any]:
        """What `/_requests` answers with."""
        return {
            "count": self.count,
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "requests": [each.public() for each in self.requests],
        }
