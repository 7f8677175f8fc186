"""One event of a stream, and the shape that every writer has."""

from typing import Any, NamedTuple, Protocol

from rlm.testing.fake_server.reply import FakeReply

__all__ = ["DONE", "SIGNATURE", "Event", "Writer"]

SIGNATURE = "ZmFrZS1zaWduYXR1cmUtb2YtdGhvdWdodHM="
"""Stands for what a provider signs its reasoning with, and wants to see again."""


class Event(NamedTuple):
    """`name` goes into an `event:` line; a payload that is a text goes out as it is."""

    payload: Any
    name: str | None = None


DONE = Event("[DONE]")


class Writer(Protocol):
    """Writes answers in one dialect."""

    def plain(self, reply: FakeReply) -> dict[str, Any]:
        """The body of a whole reply."""

    def events(self, reply: FakeReply) -> list[Event]:
        """The same as a stream."""

    def error(self, status: int, message: str) -> dict[str, Any]:
        """The body of a refusal with that status."""

    def failed(self, reply: FakeReply, status: int, message: str) -> dict[str, Any]:
        """The body of a reply of status 200 that reports an error."""

    def error_event(self, status: int, message: str) -> Event:
        """The event with which a stream of status 200 reports an error."""
