"""What one `RLM` object keeps: the way to each model, its environment, its tools."""

import asyncio
import atexit
import hashlib
import json
import math
import re
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from rlm import models as knowledge
from rlm import prompts
from rlm._util.limited import in_thread
from rlm.calls.cache import ReplyCache, as_cache
from rlm.calls.calls import Calls, Route
from rlm.calls.pacing import RateLimit
from rlm.calls.scheduler import Scheduler
from rlm.calls.scope import Scope
from rlm.calls.sending import MAX_ATTEMPTS
from rlm.config import RunConfig
from rlm.context import ContextValue, StoredContext, store_context
from rlm.engine.run import Services, Task
from rlm.errors import ConfigError, SessionError
from rlm.messages import ModelInfo, Price
from rlm.portal import existing_portal
from rlm.protocols import Client, Environment, Tool, with_defaults
from rlm.wiring import registry

if TYPE_CHECKING:  # What many programs never use is imported where it is.
    from rlm.chat import Keeper
    from rlm.records.journal import Archive

__all__ = ["House", "Model", "Traffic"]

SMALL_CONTEXT_CHARS = 1_000_000
"""Larger ones, and files, are read and encoded in a thread."""

_SECRET = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)

Model = str | Client | Callable[..., Any]
"""A model's name, a client, or a function that answers a prompt."""


class Traffic(Struct, frozen=True):
    """How requests travel: which replies serve twice, how many a minute, when to ask once more."""

    cache: bool | str | Path | ReplyCache | None = None
    rate_limits: Mapping[str, RateLimit] = field(default_factory=dict)
    hedge_after_seconds: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.rate_limits, Mapping):
            raise ConfigError(f"rate_limits must be a dict, not {self.rate_limits!r}")
        for name, limit in self.rate_limits.items():
            if not isinstance(limit, RateLimit):
                raise ConfigError(f"rate_limits[{name!r}] must be a RateLimit, not {limit!r}")
        seconds = self.hedge_after_seconds
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and 0 < seconds < math.inf):
            raise ConfigError(f"hedge_after_seconds must be a positive number, not {seconds!r}")


class House:
    """Found and checked once, at the start, so that mistakes show before a run does."""

    def __init__(
        self,
        clients: Mapping[str, Client] | None,
        prices: Mapping[str, tuple[float, float] | Price] | None,
        windows: Mapping[str, int] | None,
        client_options: Mapping[str, Mapping[str, Any]] | None,
        variables: Mapping[str, str],
        journal: bool | str | Path | None,
        traffic: Traffic,
    ) -> None:
        self._clients = dict(clients or {})
        self._prices = {name: _as_price(given) for name, given in (prices or {}).items()}
        self._windows = dict(windows or {})
        self._client_options = client_options or {}
        self._variables = variables
        self.archive = _archive(journal, variables)
        self._traffic = traffic
        self._cache = as_cache(traffic.cache, variables)
        self._routes: dict[str, Route] = {}
        self._calls: WeakKeyDictionary[asyncio.AbstractEventLoop, Calls] = WeakKeyDictionary()
        self._last_resort = weakref.finalize(self, _close_on_portal, self._routes)
        self._last_resort.atexit = False  # then `_close_all` does it, and waits
        _open.add(self)

    def adopt(self, model: Model) -> str:
        """Find the way to a model; the name it goes by from now on."""
        names: tuple[str, ...]
        if isinstance(model, str):
            name = model
            provider, _, wire_name = model.partition("/")
            if provider in self._clients and wire_name:
                client = self._clients[provider]
                identity = _own_identity(client)
            else:
                options = self._client_options.get(model, {})
                client, wire_name = registry.make_client(model, self._variables, **options)
                provider = registry.split_model(model)[0]
                identity = _own_identity(client) or self._identity(provider, options)
            names = tuple(dict.fromkeys((name, f"{provider}/{wire_name}", provider)))
        else:
            client, name = _as_client(model)
            wire_name, identity = name, _own_identity(client)
            if name in self._routes and self._routes[name].client is not client:
                name = f"{name}-{len(self._routes)}"
            names = (name,)
        info = self._info(name, client.info(wire_name))
        if isinstance(model, str):
            knowledge.tell_once(name, info, prompts.UNKNOWN_WINDOW_TOKENS)
        if self._cache is not None and identity is None:
            raise ConfigError(
                f"cache= can't tell replies of {name} from those of other servers: give its client "
                "an attribute `identity`, a text that changes with everything it is set up with"
            )
        attempts = getattr(client, "max_attempts", MAX_ATTEMPTS)
        self._routes[name] = Route(client, wire_name, info, identity, names, attempts)
        return name

    def _info(self, name: str, known: ModelInfo) -> ModelInfo:
        """What is known of a model; what the caller says of it counts."""
        if name in self._prices:
            known = replace(known, price=self._prices[name])
        if name in self._windows:
            known = replace(known, window_tokens=self._windows[name])
        return known

    def _identity(self, provider: str, options: Mapping[str, Any]) -> str:
        """Which server this is, as a digest: its provider, its address, and what decides replies.

        Keys are left out: who pays does not change what is answered.
        """
        known = registry.PROVIDERS.get(provider)
        variables = known.base_url_variables if known else ()
        told = {name: value for name, value in options.items() if name != "api_key"}
        address = [self._variables.get(name) for name in (*variables, "AZURE_OPENAI_API_VERSION")]
        whole = msgspec.json.encode([provider, address, told], order="deterministic", enc_hook=repr)
        return hashlib.sha256(whole).hexdigest()

    def furnish(
        self,
        environment: str | Environment,
        environment_kwargs: Mapping[str, Any] | None,
        config: RunConfig,
        tools: Any,
        sub_tools: Any,
    ) -> None:
        """Take in where cells run and what they may call. Children get `sub_tools`, if given."""
        for what, given in (("prices", self._prices), ("windows", self._windows)):
            if unused := sorted(given.keys() - self._routes.keys()):
                raise ConfigError(f"{what}= names {unused[0]!r}; models: {', '.join(self._routes)}")
        known = {name for route in self._routes.values() for name in route.names}
        if unused := sorted(self._traffic.rate_limits.keys() - known):
            listed = ", ".join(sorted(known))
            raise ConfigError(f"rate_limits= names {unused[0]!r}; models and providers: {listed}")
        self._is_own_environment = not isinstance(environment, str)
        if isinstance(environment, str):
            environment = registry.make_environment(environment, environment_kwargs or {})
        elif environment_kwargs:
            raise ConfigError("environment_kwargs goes with the name of an environment")
        self._environment = with_defaults(environment)
        self._environment_kwargs = {
            name: value
            for name, value in (environment_kwargs or {}).items()
            if not _SECRET.search(name)
        }
        self._max_concurrent_calls = config.limits.max_concurrent_calls
        self.grant(tools, sub_tools)

    def grant(self, tools: Any, sub_tools: Any = None) -> None:
        """Say what cells may call from the next run on; children the same, or `sub_tools`."""
        self._own = _granted(tools)
        self._childrens = self._own if sub_tools is None else _granted(sub_tools)

    async def store(self, value: ContextValue | StoredContext, config: RunConfig) -> StoredContext:
        """Small values here, and what takes long in threads: it is described, then measured and
        laid out for the sandbox at the same time. A large one is hashed beside the run."""
        if isinstance(value, StoredContext):
            return value
        if value is None or (isinstance(value, str) and len(value) < SMALL_CONTEXT_CHARS):
            return store_context(value)
        stored = await in_thread(store_context, value)
        await asyncio.gather(
            asyncio.to_thread(lambda: stored.known_sha256), self._prepare(stored, config)
        )
        return stored

    async def _prepare(self, stored: StoredContext, config: RunConfig) -> None:
        if config.strategy == "rlm":
            with suppress(SessionError):  # The session will tell, where a run can end of it.
                await self._environment.prepare(stored)

    def settings(self, config: RunConfig, answer_schema: dict[str, Any] | None) -> dict[str, Any]:
        """What it takes to run something again, as plain values; secrets are not among them.

        `own` names what only the program that made it has: clients, functions, environments.
        """
        own = [name for name, route in self._routes.items() if len(route.names) == 1]
        own += [
            name for name in self._clients if any(m.startswith(f"{name}/") for m in self._routes)
        ]
        tools = [{"name": t.name, "description": t.description} for t in self._own[0]]
        encoded = msgspec.json.encode(
            {
                "config": config,
                "environment": self._environment.name,
                "environment_kwargs": self._environment_kwargs,
                "infos": {name: route.info for name, route in self._routes.items()},
                "tools": tools,
                "values": sorted(self._own[1]),
                "answer_schema": answer_schema,
                "own": sorted(own),
            },
            enc_hook=repr,
        )
        plain: dict[str, Any] = msgspec.json.decode(encoded)
        return plain

    def new_keeper(self, model: str) -> "Keeper":
        """For a chat that may be saved and loaded."""
        from rlm.chat import Keeper

        environment = self._environment
        return Keeper(
            model=model,
            environment=environment.name,
            may_read=environment.is_sandbox,
            tools=lambda: [tool.name for tool in self._own[0]],
        )

    def services(self) -> Services:
        """What the next run has to work with."""
        calls = self._calls_of_loop()

        async def fallback(task: Task, scope: Scope, config: RunConfig) -> str | None:
            from rlm.engine.mapreduce import map_reduce

            return await map_reduce(calls, task, scope, config)

        children = Services(calls, self._environment, *self._childrens, fallback=fallback)
        return Services(calls, self._environment, *self._own, children, fallback)

    async def close(self) -> None:
        self._last_resort.detach()
        _open.discard(self)
        self._calls.pop(asyncio.get_running_loop(), None)
        await _close_clients(self._routes)
        if tools := (*self._own[0], *self._childrens[0]):
            from rlm.tools import release_tools

            await release_tools(tools)
        if self._cache is not None:
            await self._cache.close()
        await self._environment.close()

    def _calls_of_loop(self) -> Calls:
        """Schedulers belong to one event loop, so each loop has calls of its own."""
        loop = asyncio.get_running_loop()
        known = self._calls.get(loop)
        if known is None:
            known = self._calls[loop] = Calls(
                self._routes.__getitem__,
                Scheduler(self._max_concurrent_calls, self._traffic.rate_limits),
                cache=self._cache,
                hedge_after_seconds=self._traffic.hedge_after_seconds,
            )
        return known


def _own_identity(client: Client) -> str | None:
    """What a client says of itself, if it does; see docs/concepts/calls.md."""
    identity = getattr(client, "identity", None)
    return identity if isinstance(identity, str) and identity else None


_open: "weakref.WeakSet[House]" = weakref.WeakSet()
"""Houses nobody has closed yet; many programs never do."""


async def _close_clients(routes: Mapping[str, Route]) -> None:
    for client in {id(route.client): route.client for route in routes.values()}.values():
        await client.close()


def _close_on_portal(routes: Mapping[str, Route]) -> None:
    if (found := existing_portal()) is not None:
        found.close_later(lambda: _close_clients(routes))


def _close_all() -> None:
    for house in list(_open):
        _close_on_portal(house._routes)
    if (found := existing_portal()) is not None:
        found.wait_for_closing()


atexit.register(_close_all)


def _as_client(model: Any) -> tuple[Client, str]:
    """The client, and what it is called; a function gets one of its own."""
    if hasattr(model, "complete"):
        return model, type(model).__name__
    from rlm.clients.callable import CallableClient

    return CallableClient(model), getattr(model, "__name__", type(model).__name__)


def _archive(journal: bool | str | Path | None, variables: Mapping[str, str]) -> "Archive | None":
    """Where runs are journaled: in the usual folder, in another one, or nowhere."""
    if journal is None or journal is False:
        return None
    from rlm.records.journal import Archive, Places

    if journal is True:
        return Archive(Places.usual(variables))
    if not isinstance(journal, str | Path) or not str(journal):
        raise ConfigError(f"journal must be True or a folder, not {journal!r}")
    return Archive(Places(Path(journal).expanduser()))


def _as_price(given: tuple[float, float] | Price) -> Price:
    return given if isinstance(given, Price) else Price(*given)


def _granted(given: Any) -> tuple[tuple[Tool, ...], dict[str, StoredContext], tuple[str, ...]]:
    """Functions stay on the host; plain values become variables in the REPL, and are described."""
    if given is None:
        return (), {}, ()
    from rlm.tools import as_tools, describe_values

    tools, values = as_tools(given)
    stored = {name: _stored(value) for name, value in values.items()}
    return tools, stored, describe_values(given)


def _stored(value: Any) -> StoredContext:
    """Any JSON value: a number or a flag is no context, but may be a variable."""
    return StoredContext("json", json.dumps(value).encode(), "")
