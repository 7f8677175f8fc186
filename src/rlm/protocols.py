"""The interfaces of everything that can be replaced.

A client, environment, session or tool needs only what `Client`, `Environment`, `Session` and `Tool`
require. What it may also offer is declared, with defaults, by `ClientTraits`, `BaseEnvironment`,
`BaseSession` and `ReleasableTool`.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from rlm.events import Event
from rlm.messages import ModelInfo, Reply, ReplyKey, Request, Usage
from rlm.results import CellResult, Shown

__all__ = [
    "CALL_KEY",
    "BaseEnvironment",
    "BaseSession",
    "Client",
    "ClientTraits",
    "ContextSource",
    "DocumentSource",
    "Environment",
    "Host",
    "InMemorySource",
    "Recorder",
    "ReleasableTool",
    "ReplyStore",
    "Session",
    "Tool",
    "current_call",
    "with_defaults",
]


MAX_ATTEMPTS = 5
"""How often a request is sent, at most, unless its client says otherwise."""


class Client(Protocol):
    """One wire dialect to models. It knows nothing about runs or REPLs, and never retries."""

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply: ...

    def stream(self, request: Request, *, timeout_seconds: float) -> AsyncIterator[str | Reply]: ...

    def info(self, model: str) -> ModelInfo: ...

    async def close(self) -> None: ...


CALL_KEY: ContextVar[ReplyKey | None] = ContextVar("rlm_call", default=None)


def current_call() -> ReplyKey | None:
    """Return the key of the call that a client is asked to answer; None outside a call.

    All attempts of one call have the same key, and no other call of its run tree has it. A client
    may pass it on to where replies are recorded; its reply must not depend on it.
    """
    return CALL_KEY.get()


class ClientTraits(Struct, frozen=True):
    """Attributes that a client may have, with defaults for those that it lacks.

    `identity` distinguishes its server and all its settings from every other one, also in later
    processes; None if that is impossible. A request is sent at most `max_attempts` times.
    `model_name` is the name of its model, instead of the name of its class.
    """

    identity: str | None = None
    max_attempts: int = MAX_ATTEMPTS
    model_name: str | None = None

    @classmethod
    def of(cls, client: Client) -> "ClientTraits":
        """Read the attributes of a client; a name that is empty or not a text counts as missing."""
        had = {
            name: getattr(client, name) for name in cls.__struct_fields__ if hasattr(client, name)
        }
        for name in ("identity", "model_name"):
            if not isinstance(had.get(name), str) or not had[name]:
                had[name] = None
        return cls(**had)


class ContextSource(Protocol):
    """A stored context: bytes that can be loaded into every session of a run tree."""

    @property
    def kind(self) -> Literal["text", "json", "tagged_json", "bytes", "source"]:
        """How to read the bytes; only values of tools are `tagged_json`, see `worker.tagged`.

        The bytes of a `source` are the manifest of data that stays on the host.
        """

    @property
    def size_bytes(self) -> int: ...

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]: ...


@runtime_checkable
class DocumentSource(Protocol):
    """What a ContextSource may also offer: its texts, before they are encoded."""

    def documents_in_order(self) -> Iterator[tuple[str | None, Iterator[str]]] | None:
        """Return names and texts; read all pieces of a text before asking for the next text.

        Of kind "json": all items of a dict of texts, or of a list of texts, without names. Of
        kind "text": the text, without a name. None if it is empty, or of any other kind.
        """


@runtime_checkable
class InMemorySource(Protocol):
    """A ContextSource whose text can be used in memory without a copy."""

    def in_place(self) -> memoryview | None:
        """Return the whole text if it is ASCII and can be viewed without a copy."""


class Host(Protocol):
    """Answers the requests of sandboxed code: a kind, small JSON arguments, raw text parts.

    A call with pictures has `arguments["images"]`: for each prompt, a list of bytes and names.
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


class BaseSession(ABC):
    """A session with defaults for everything optional."""

    layers: tuple[str, ...] = ()
    """What isolates the session, a few words per layer; recorded in `SessionOpened`."""

    @abstractmethod
    async def load(self, name: str, context: ContextSource) -> None:
        """Bind a stored context to a name."""

    @abstractmethod
    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        """Run a cell."""

    @abstractmethod
    async def fetch(self, name: str) -> str | None:
        """Return the text of a variable, or None if it does not exist."""

    @abstractmethod
    async def interrupt(self) -> None:
        """Stop the running cell; its variables stay."""

    @abstractmethod
    async def close(self) -> None:
        """End the interpreter; may be called twice."""

    @property
    @abstractmethod
    def variables(self) -> tuple[str, ...]:
        """The names of the user's variables."""

    async def set_tools(self, tools: list[dict[str, str]]) -> None:  # noqa: B027 - optional
        """Replace the tool functions; without this method, cells still have `call_tool`."""


class Environment(Protocol):
    """Configuration that can open sessions."""

    name: str

    async def open(self, host: Host, options: dict[str, Any]) -> Session: ...

    async def close(self) -> None: ...


class BaseEnvironment(ABC):
    """An environment with defaults for everything optional."""

    name: str
    is_sandbox: bool = False
    """Whether it holds hostile code; only then may it unpickle the variables of a saved chat."""
    no_sandbox: str | None = None
    """Why the attacks of the conformance suite make no sense here; None if they do."""
    is_paid: bool = False
    """Whether sessions cost money."""
    repl_names: Sequence[Any] = ()
    """Names that cells have besides the usual ones, each with `usage` and `description`."""
    patience: float = 1.0
    """A factor for the time limits of the conformance suite."""
    lacks: Mapping[str, str] = MappingProxyType({})
    """Promises it can't keep: part of the name of a row of the conformance suite, and why."""
    harms_host: Mapping[str, str] = MappingProxyType({})
    """Rows of the suite that must not be tried, and why."""

    @abstractmethod
    async def open(self, host: Host, options: dict[str, Any]) -> BaseSession:
        """Start a session and wait until it is ready."""

    @abstractmethod
    async def close(self) -> None:
        """Close the sessions that are still open."""

    @classmethod
    def problem(cls) -> str | None:
        """Return why it can't be used here; must not start anything."""
        return None

    async def not_ready(self) -> str | None:
        """Return what the first session would have to wait for, such as an image to download."""
        return None

    async def describe(self) -> dict[str, Any]:
        """Return plain facts about what isolates cells: `isolation`, `missing` and others."""
        return {}

    async def prepare(self, context: ContextSource) -> None:  # noqa: B027 - optional
        """Do the slow part of `load` early, while the context is still being hashed."""


def with_defaults(environment: Environment) -> BaseEnvironment:
    """Return the environment with every optional member; unchanged if it inherits them."""
    if isinstance(environment, BaseEnvironment):
        return environment
    return _AdaptedEnvironment(environment)


class _AdaptedEnvironment(BaseEnvironment):
    """An environment that does not inherit `BaseEnvironment`; what it offers takes precedence."""

    def __init__(self, environment: Environment) -> None:
        self._inner: Any = environment
        self.name = environment.name
        for name in (*BaseEnvironment.__annotations__, "problem", "not_ready", "prepare"):
            if hasattr(environment, name):
                setattr(self, name, getattr(environment, name))

    async def open(self, host: Host, options: dict[str, Any]) -> BaseSession:
        session = await self._inner.open(host, options)
        return session if isinstance(session, BaseSession) else _AdaptedSession(session)

    async def close(self) -> None:
        await self._inner.close()

    async def describe(self) -> dict[str, Any]:
        if not hasattr(self._inner, "describe"):
            return {}
        facts = self._inner.describe()
        return dict(await facts if inspect.isawaitable(facts) else facts)


class _AdaptedSession(BaseSession):
    """A session that does not inherit `BaseSession`."""

    def __init__(self, session: Session) -> None:
        self._inner = session
        for name in ("layers", "set_tools"):
            if hasattr(session, name):
                setattr(self, name, getattr(session, name))

    async def load(self, name: str, context: ContextSource) -> None:
        await self._inner.load(name, context)

    async def execute(self, code: str, *, timeout_seconds: float) -> CellResult:
        return await self._inner.execute(code, timeout_seconds=timeout_seconds)

    async def fetch(self, name: str) -> str | None:
        return await self._inner.fetch(name)

    async def interrupt(self) -> None:
        await self._inner.interrupt()

    async def close(self) -> None:
        await self._inner.close()

    @property
    def variables(self) -> tuple[str, ...]:
        return self._inner.variables


class Recorder(Protocol):
    """An object that receives every event of a run. `record` must not block; its result is ignored.

    If it has a true attribute `needs_context_hash`, large contexts are hashed during the run and
    the hash is reported (`ContextHashed`); small ones are hashed anyway. With a true attribute
    `wants_pieces`, it receives answers written as prose while they arrive (`OutputStreamed`). An
    async method `catch_up` is awaited before each request; a recorder that is behind waits there.
    """

    def record(self, event: Event) -> None: ...


class ReplyStore(Protocol):
    """The stored replies of earlier executions of one run tree; the journal is one such store.

    It is read before anything is sent, and written before anything is used.
    """

    async def get(self, key: ReplyKey, request: Request | None) -> Reply | None: ...

    async def put(self, key: ReplyKey, reply: Reply) -> None: ...

    def keep(self, key: ReplyKey, usage: Usage) -> None:
        """Store the most that a request without a reply may have cost, each time it is sent."""

    def take_unrecalled(self) -> Sequence[tuple[ReplyKey, Usage]]:
        """Return what earlier executions paid for and this one has not recalled; each once.

        What they gave to `keep` is a part of it, with keys of the kind `KEPT`.
        """

    async def recorded(self, path: str, step: int, what: str) -> Shown | None: ...

    async def show(self, path: str, step: int, what: str, shown: Shown) -> str:
        """Store what the model is about to be shown; return the text to show."""


class Tool(Protocol):
    """A host function that sandboxed code may call by name."""

    name: str
    description: str

    async def call(self, arguments: dict[str, Any]) -> Any: ...


@runtime_checkable
class ReleasableTool(Protocol):
    """What a Tool may also offer: it is released when no `RLM` object uses it any more."""

    async def release(self) -> None: ...
