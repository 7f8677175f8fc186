"""The interfaces of everything that can be replaced."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from rlm.events import Event
from rlm.messages import ModelInfo, Reply, ReplyKey, Request
from rlm.results import CellResult, Shown

__all__ = [
    "Client",
    "ContextSource",
    "DocumentSource",
    "Environment",
    "Host",
    "Recorder",
    "ReplyStore",
    "Session",
    "Tool",
]


class Client(Protocol):
    """One wire dialect to models. It knows nothing about runs or REPLs, and never retries."""

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply: ...

    def stream(self, request: Request, *, timeout_seconds: float) -> AsyncIterator[str | Reply]: ...

    def info(self, model: str) -> ModelInfo: ...

    async def close(self) -> None: ...


class ContextSource(Protocol):
    """A stored context: bytes that every session of a run tree can be given."""

    kind: Literal["text", "json", "bytes"]

    @property
    def size_bytes(self) -> int: ...

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]: ...


@runtime_checkable
class DocumentSource(Protocol):
    """What a ContextSource may offer besides: its texts, before they are encoded."""

    def documents_in_order(self) -> Iterator[tuple[str | None, Iterator[str]]] | None:
        """Names and texts, each text in pieces and read to its end before the next is asked for.

        Of kind "json": all items of a dict of texts, or, without names, of a list of texts. Of
        kind "text": the text, without a name. None if it is empty, or anything else.
        """


class Host(Protocol):
    """Who answers what sandboxed code asks: a kind, small JSON arguments, raw text parts.

    A call with pictures has `arguments["images"]`: for each prompt a list of bytes and of names.
    Implemented by the bridge. Raising CallRefused or ModelError answers with a repairable error.
    """

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]: ...


class Session(Protocol):
    """A live interpreter. What its code can repair is a CellResult; its death is a SessionError."""

    async def load(self, name: str, context: ContextSource) -> None: ...

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult: ...

    async def fetch(self, name: str) -> str | None: ...

    async def interrupt(self) -> None: ...

    async def close(self) -> None: ...

    @property
    def variables(self) -> tuple[str, ...]: ...


class Environment(Protocol):
    """Configuration that can open sessions."""

    name: str

    async def open(self, host: Host, options: dict[str, Any]) -> Session: ...

    async def close(self) -> None: ...


class Recorder(Protocol):
    """Receives every event of a run. `record` must not block, and its result is ignored.

    If it has a true attribute `needs_context_hash`, large contexts are hashed during the run and
    the hash is reported (`ContextHashed`); small ones are hashed anyway.
    """

    def record(self, event: Event) -> None: ...


class ReplyStore(Protocol):
    """What is stored about earlier executions of one run tree; the journal is one.

    It is read before anything is sent, and written before anything is used.
    """

    async def get(self, key: ReplyKey, request: Request | None) -> Reply | None: ...

    async def put(self, key: ReplyKey, reply: Reply) -> None: ...

    async def recorded(self, path: str, step: int, what: str) -> Shown | None: ...

    async def show(self, path: str, step: int, what: str, shown: Shown) -> str:
        """Store what the model is about to be shown; return the text to show."""


class Tool(Protocol):
    """A host function that sandboxed code may call by name."""

    name: str
    description: str

    async def call(self, arguments: dict[str, Any]) -> Any: ...
