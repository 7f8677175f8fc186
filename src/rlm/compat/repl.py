"""`LocalREPL` and its siblings: the reference's environments over our sandboxes."""

import asyncio
import contextlib
import copy
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from rlm.compat.handlers import LMRequest, send_lm_request
from rlm.compat.tool_entries import extract_tool_value, validate_custom_tools
from rlm.compat.types import Completion, REPLResult
from rlm.compat.values import SNAPSHOT_CODE, read_values
from rlm.context import store_context
from rlm.engine.repl_values import ReplValue
from rlm.environments.auto import meant_by_local
from rlm.errors import CallRefused, SessionError
from rlm.portal import existing_portal, portal
from rlm.protocols import BaseSession, ContextSource, Tool, with_defaults
from rlm.results import CellResult
from rlm.tools import as_tools
from rlm.wiring import registry
from rlm.worker import tagged

__all__ = [
    "E2BREPL",
    "BaseEnv",
    "DaytonaREPL",
    "DockerREPL",
    "IPythonREPL",
    "IsolatedEnv",
    "LocalREPL",
    "ModalREPL",
    "NonIsolatedEnv",
    "PrimeREPL",
    "SupportsCustomTools",
    "SupportsPersistence",
    "get_environment",
]

CELL_SECONDS = 600.0
SNAPSHOT_SECONDS = 20.0
NO_HANDLER = "Error: No LM handler configured"
FRESH_ANSWER = {"content": "", "ready": False}

Payload = dict[str, Any] | list[Any] | str
Subcall = Callable[[str, str | None], Completion]
T = TypeVar("T")


class BaseEnv(ABC):
    """Where code runs, with the methods of the reference."""

    def __init__(
        self,
        persistent: bool = False,
        depth: int = 1,
        max_concurrent_subcalls: int = 4,
        **kwargs: Any,
    ) -> None:
        self.persistent = persistent
        self.depth = depth
        self.max_concurrent_subcalls = max_concurrent_subcalls
        self.kwargs = kwargs

    @abstractmethod
    def setup(self) -> None:
        """Begin with an empty REPL."""

    @abstractmethod
    def load_context(self, context_payload: Payload) -> None:
        """Bind a context to `context` and `context_0`."""

    @abstractmethod
    def execute_code(self, code: str) -> REPLResult:
        """Run a cell."""


class IsolatedEnv(BaseEnv, ABC):
    """An environment on a different machine from the program."""


class NonIsolatedEnv(BaseEnv, ABC):
    """An environment on the same machine as the program."""


@runtime_checkable
class SupportsCustomTools(Protocol):
    """An environment with functions of the program."""

    custom_tools: dict[str, Any]


@runtime_checkable
class SupportsPersistence(Protocol):
    """An environment that can serve several completions."""

    def update_handler_address(self, address: tuple[str, int]) -> None: ...

    def add_context(self, context_payload: Payload, context_index: int | None = None) -> int: ...

    def get_context_count(self) -> int: ...

    def add_history(
        self, message_history: list[dict[str, Any]], history_index: int | None = None
    ) -> int: ...

    def get_history_count(self) -> int: ...


class _Calls:
    """The host of the REPL's session, which answers what cells ask.

    As in the reference, a call that fails returns a text and raises no exception.
    """

    def __init__(self, repl: "_SandboxREPL", tools: Sequence[Tool]) -> None:
        self._repl = repl
        self._tools = {tool.name: tool for tool in tools}
        self.made: list[Completion] = []

    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        model = arguments.get("model") if isinstance(arguments.get("model"), str) else None
        if kind == "llm":
            return {"failed": {}}, await self._all(parts, model, self._asked)
        if kind == "rlm":
            contexts = arguments.get("contexts")
            count = len(contexts) if isinstance(contexts, list) else len(parts)
            ask = self._asked if self._repl.subcall_fn is None else self._child
            return {"failed": {}}, await self._all(parts[:count], model, ask)
        if kind == "tool":
            return await self._tool(arguments)
        if kind == "budget":
            return {}, ()
        raise CallRefused(f"a {type(self._repl).__name__} has no {kind!r}", limit="kind")

    async def _all(
        self,
        prompts: Sequence[str],
        model: str | None,
        ask: Callable[[str, str | None], str | Completion],
    ) -> list[str]:
        slots = asyncio.Semaphore(self._repl.max_concurrent_subcalls)

        async def one(prompt: str) -> str | Completion:
            async with slots:
                return await asyncio.to_thread(ask, prompt, model)

        answers = await asyncio.gather(*(one(prompt) for prompt in prompts))
        self.made += [each for each in answers if isinstance(each, Completion)]
        return [each if isinstance(each, str) else each.response for each in answers]

    def _asked(self, prompt: str, model: str | None) -> str | Completion:
        address = self._repl.lm_handler_address
        if not address:
            return NO_HANDLER
        response = send_lm_request(address, LMRequest(prompt, None, model, self._repl.depth))
        return response.chat_completion or f"Error: {response.error}"

    def _child(self, prompt: str, model: str | None) -> str | Completion:
        assert self._repl.subcall_fn is not None
        try:
            return self._repl.subcall_fn(prompt, model)
        except Exception as error:  # noqa: BLE001 - the plugin boundary: a function of the caller
            return f"Error: RLM query failed - {error}"

    async def _tool(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], Sequence[str]]:
        name, given = arguments.get("name"), arguments.get("arguments")
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None or not isinstance(given, dict):
            raise CallRefused(f"unknown tool {name!r}", limit="tools")
        values = {key: tagged.unmarked(value) for key, value in given.items()}
        return {"json": tagged.dumps(await tool.call(values))}, ()


class _SandboxREPL(BaseEnv):
    """A REPL in one of our environments, opened with the first cell."""

    environment = "local"

    def __init__(
        self,
        lm_handler_address: tuple[str, int] | None = None,
        context_payload: Payload | None = None,
        setup_code: str | None = None,
        persistent: bool = False,
        depth: int = 1,
        subcall_fn: Subcall | None = None,
        custom_tools: dict[str, Any] | None = None,
        custom_sub_tools: dict[str, Any] | None = None,
        compaction: bool = False,
        max_concurrent_subcalls: int = 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(persistent, depth, max_concurrent_subcalls, **kwargs)
        validate_custom_tools(custom_tools)
        self.lm_handler_address = lm_handler_address
        self.subcall_fn = subcall_fn
        self.custom_tools = custom_tools or {}
        self.custom_sub_tools = self.custom_tools if custom_sub_tools is None else custom_sub_tools
        self.compaction = compaction
        made = registry.make_environment(_meant(self.environment), kwargs)
        self._environment = with_defaults(made)
        self.temp_dir = tempfile.mkdtemp(prefix="rlm-repl-")
        self._session: BaseSession | None = None
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.temp_dir, True)
        self._begin()
        if context_payload is not None:
            self.load_context(context_payload)
        if setup_code:
            self.execute_code(setup_code)

    def _begin(self) -> None:
        functions = {n: extract_tool_value(each) for n, each in self.custom_tools.items()}
        self.globals: dict[str, Any] = {n: each for n, each in functions.items() if callable(each)}
        self.locals: dict[str, Any] = {"answer": dict(FRESH_ANSWER)}
        self._tools, self._values = as_tools(self.custom_tools or None)
        self._calls = _Calls(self, self._tools)
        self._loaded: dict[str, Any] = dict(self._values)
        self.locals.update(self._values)
        self._contexts = self._histories = 0
        if self.compaction:
            self._bind("history", [])

    # -- what the reference offers -----------------------------------------------------------

    def setup(self) -> None:
        """Begin with an empty REPL, which has the tools and no context."""
        self._close()
        self._begin()

    def load_context(self, context_payload: Payload) -> None:
        """Bind a context to `context` and `context_0`."""
        self.add_context(context_payload, 0)

    def add_context(self, context_payload: Payload, context_index: int | None = None) -> int:
        """Bind a context to `context_N`, the first one to `context` too; return N."""
        index = self._contexts if context_index is None else context_index
        self._bind(f"context_{index}", context_payload)
        if index == 0:
            self._bind("context", context_payload)
        self._contexts = max(self._contexts, index + 1)
        return index

    def get_context_count(self) -> int:
        return self._contexts

    def add_history(
        self, message_history: list[dict[str, Any]], history_index: int | None = None
    ) -> int:
        """Bind a conversation to `history_N`, the first one to `history` too; return N."""
        index = self._histories if history_index is None else history_index
        messages = copy.deepcopy(message_history)
        self._bind(f"history_{index}", messages)
        if index == 0 and not self.compaction:
            self._bind("history", messages)
        self._histories = max(self._histories, index + 1)
        return index

    def get_history_count(self) -> int:
        return self._histories

    def append_compaction_entry(self, entry: Any) -> None:
        """Add to `history`, if this was created with `compaction=True`."""
        if self.compaction:
            self._bind("history", [*self._loaded["history"], copy.deepcopy(entry)])

    def update_handler_address(self, address: tuple[str, int]) -> None:
        self.lm_handler_address = address

    def execute_code(self, code: str) -> REPLResult:
        """Run a cell; what it raises is in `stderr`, and a dead REPL is replaced."""
        self._calls.made = []
        result, values = self._call(lambda: self._execute(code))
        stderr = result.stderr
        if result.error is not None:
            stderr += f"\n{result.error.type}: {result.error.message}"
        if values is not None:
            shown = {n: each for n, each in values.items() if n not in self.globals}
            self.locals = {**shown, **self._loaded}
        return REPLResult(
            stdout=result.stdout,
            stderr=stderr,
            locals=dict(self.locals),
            execution_time=result.seconds,
            rlm_calls=list(self._calls.made),
            final_answer=None if result.submission is None else result.submission.text,
        )

    def cleanup(self) -> None:
        """End the REPL; it can't be used afterwards."""
        self._close()
        self._finalizer()
        self.globals.clear()
        self.locals.clear()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    # -- the session -------------------------------------------------------------------------

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return portal().call(work)

    def _bind(self, name: str, value: Any) -> None:
        self._loaded[name] = self.locals[name] = value
        if self._session is not None:
            session = self._session
            self._call(lambda: session.load(name, _stored(value)))

    async def _execute(self, code: str) -> tuple[CellResult, dict[str, Any] | None]:
        try:
            session = await self._opened()
            result = await session.execute(code, timeout_seconds=CELL_SECONDS)
            shot = await session.execute(SNAPSHOT_CODE, timeout_seconds=SNAPSHOT_SECONDS)
            values = read_values(shot.stdout)
            await self._rebind(session, result, values)
        except SessionError as error:
            await self._lose()
            return CellResult(stderr=f"\n{type(error).__name__}: {error}"), None
        return result, _own(values)

    async def _opened(self) -> BaseSession:
        if self._session is None:
            tools = [{"name": t.name, "description": t.description} for t in self._tools]
            self._session = await self._environment.open(self._calls, {"tools": tools})
            for name, value in self._loaded.items():
                await self._session.load(name, _stored(value))
        return self._session

    async def _rebind(
        self, session: BaseSession, result: CellResult, values: dict[str, Any] | None
    ) -> None:
        """Restore the names that a cell must not change; after an answer, await another."""
        for name in ("context", "history"):
            if values is not None and name in self._loaded:
                await session.load(name, _stored(self._loaded[name]))
        if result.submission is not None:
            again = {**FRESH_ANSWER, "content": result.submission.text}
            await session.load("answer", _stored(again))

    async def _lose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(SessionError):
                await session.close()

    def _close(self) -> None:
        if self._session is not None and existing_portal() is not None:
            self._call(self._lose)


def _own(values: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the variables without the functions that every REPL has."""
    if values is None:
        return None
    from rlm.worker.namespace import PRELOADED
    from rlm.worker.repl_names import REPL_NAMES

    ours = {entry.name for entry in REPL_NAMES if not entry.yields}
    ours = ours.union(PRELOADED) - {"answer", "context", "history"}
    operators = {entry.name for entry in REPL_NAMES if entry.yields}
    return {
        name: each
        for name, each in values.items()
        if name not in ours and not (name in operators and str(each).startswith("<function "))
    }


def _stored(value: Any) -> ContextSource:
    return store_context(value) if isinstance(value, str | list | dict) else ReplValue.of(value)


class LocalREPL(_SandboxREPL, NonIsolatedEnv):
    """A REPL in a hardened process of this machine."""


class IPythonREPL(_SandboxREPL, NonIsolatedEnv):
    """The same with IPython's shell."""

    environment = "ipython"


class DockerREPL(_SandboxREPL, NonIsolatedEnv):
    """A REPL in a container."""

    environment = "docker"


class ModalREPL(_SandboxREPL, IsolatedEnv):
    """A REPL in a sandbox of Modal."""

    environment = "modal"


class PrimeREPL(_SandboxREPL, IsolatedEnv):
    """A REPL in a sandbox of Prime Intellect."""

    environment = "prime"


class DaytonaREPL(_SandboxREPL, IsolatedEnv):
    """A REPL in a sandbox of Daytona."""

    environment = "daytona"


class E2BREPL(_SandboxREPL, IsolatedEnv):
    """A REPL in a sandbox of E2B."""

    environment = "e2b"


REPLS: dict[str, type[_SandboxREPL]] = {
    each.environment: each
    for each in (LocalREPL, IPythonREPL, DockerREPL, ModalREPL, PrimeREPL, DaytonaREPL, E2BREPL)
}


def _meant(environment: str) -> str:
    return meant_by_local() if environment == "local" else environment


def get_environment(environment: str, environment_kwargs: dict[str, Any]) -> BaseEnv:
    """Return the environment with this name, ready for its first cell."""
    if environment in REPLS:
        return REPLS[environment](**environment_kwargs)
    kind = type("SandboxREPL", (_SandboxREPL,), {"environment": environment})
    repl: BaseEnv = kind(**environment_kwargs)
    return repl
