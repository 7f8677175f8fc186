"""One event of a stream, and the protocol of writers."""

from typing import Any, NamedTuple, Protocol

from rlm.testing.fake_server.reply import FakeReply

__all__ = ["DONE", "SIGNATURE", "Event", "Writer"]

SIGNATURE = "ZmFrZS1zaWduYXR1cmUtb2YtdGhvdWdodHM="
"""Stands for the signature of a provider's reasoning, which it expects back."""


class Event(NamedTuple):
    """One event. `name` becomes its `event:` line; a text payload is sent unchanged."""

    payload: Any
    name: str | None = None


DONE = Event("[DONE]")


class Writer(Protocol):
    """Writes answers in one dialect."""

    def plain(self, reply: FakeReply) -> dict[str, Any]:
        """Return the body of a whole reply."""

    def events(self, reply: FakeReply) -> list[Event]:
        """Return the same as a stream."""

    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return the body of a refusal with that status."""

    def failed(self, reply: FakeReply, status: int, message: str) -> dict[str, Any]:
        """Return the body of a reply of status 200 that reports an error."""

    def error_event(self, status: int, message: str) -> Event:
        """Return the event with which a stream of status 200 reports an error."""
