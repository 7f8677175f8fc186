"""The interface of data that stays on the host, and the limits of requests from cells."""

from typing import Any, Protocol

from msgspec import Struct

__all__ = ["DataRefused", "DataSource", "QueryLimits"]


class QueryLimits(Struct, frozen=True):
    """The limits of one query from a cell, and of the process that answers it.

    `memory_bytes` is how much memory the database may use; its process may use twice as much.
    """

    rows: int = 10_000
    bytes: int = 4 << 20
    seconds: float = 30.0
    memory_bytes: int = 1 << 30
    query_chars: int = 200_000
    parameters: int = 1_000
    threads: int = 2


class DataRefused(Exception):
    """A request that can't be answered; the message is one line that the cell sees."""


class DataSource(Protocol):
    """Data that is not copied into sandboxes: cells request parts of it.

    `id` is the same for the same data. `manifest` is what a sandbox gets: JSON with the `id`, the
    kind of source (`source`), and what its names in the REPL need. `spec` is enough to open the
    source again, without secrets; None if only the program that made it can.
    """

    @property
    def id(self) -> str: ...
    @property
    def manifest(self) -> dict[str, Any]: ...
    @property
    def description(self) -> str: ...
    @property
    def spec(self) -> dict[str, Any] | None: ...

    def preview(self, chars: int) -> str:
        """Return a few rows, shown to a model that may see content at once."""
        ...

    async def answer(self, method: str, arguments: dict[str, Any]) -> str:
        """Return the answer to a request of a cell, as JSON; raise DataRefused."""
        ...

    def close(self) -> None:
        """Release processes, connections and temporary files; a later request opens them again."""
        ...
