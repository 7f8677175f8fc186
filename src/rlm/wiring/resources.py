"""What one `RLM` object keeps: the routes to its models, its environment, its tools."""

import asyncio
import atexit
import hashlib
import json
import logging
import math
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from rlm import prompts
from rlm._util.limited import in_thread
from rlm.calls.cache import ReplyCache, as_cache
from rlm.calls.calls import Calls, Route
from rlm.calls.rate_limits import RateLimit
from rlm.calls.scheduler import Scheduler
from rlm.config import RunConfig, recordable
from rlm.context import ContextValue, StoredContext, store_context
from rlm.engine.repl_values import ReplValue
from rlm.engine.sessions import AfterCell
from rlm.engine.task import Services, Toolset
from rlm.environments.auto import AutoEnvironment, refusal
from rlm.errors import ConfigError, SessionError
from rlm.limits import Limits
from rlm.messages import ModelInfo, Price
from rlm.models import warn_if_unknown
from rlm.portal import existing_portal
from rlm.protocols import BaseEnvironment, Client, ClientTraits, Environment, with_defaults
from rlm.wiring import registry
from rlm.wiring.registry import SENDING_OPTIONS

if TYPE_CHECKING:  # Imported where they are used, because many programs never use them.
    from rlm.chat import ChatStorage
    from rlm.records.journal import Archive

__all__ = ["CallPolicy", "Model", "ModelSettings", "Resources"]

_log = logging.getLogger("rlm.context")

SMALL_CONTEXT_CHARS = 1_000_000
"""Larger contexts, and files, are read and encoded in a thread."""
MAX_WARNINGS = 100

_SECRET = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)

Model = str | Client | Callable[..., Any]
"""A model's name, a client, or a function that answers a prompt."""


class CallPolicy(Struct, frozen=True):
    """How requests are sent: which replies are cached, how many per minute, when to hedge."""

    cache: bool | str | Path | ReplyCache | None = None
    rate_limits: Mapping[str, RateLimit] = field(default_factory=dict)
    hedge_after_seconds: float | None = None
    max_concurrent_calls: int = Limits().max_concurrent_calls

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


class ModelSettings(Struct, frozen=True):
    """What the caller specifies about models: clients, prices, windows, options, variables."""

    clients: Mapping[str, Client] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)
    windows: Mapping[str, int] = field(default_factory=dict)
    client_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        clients: Mapping[str, Client] | None,
        prices: Mapping[str, tuple[float, float] | Price] | None,
        windows: Mapping[str, int] | None,
        client_options: Mapping[str, Mapping[str, Any]] | None,
        variables: Mapping[str, str],
    ) -> "ModelSettings":
        """Make settings from the keywords of `RLM`."""
        priced = {name: _as_price(name, given) for name, given in (prices or {}).items()}
        for name, window in (windows or {}).items():
            if isinstance(window, bool) or not isinstance(window, int) or window <= 0:
                raise ConfigError(
                    f"windows[{name!r}] must be a positive number of tokens, not {window!r}"
                )
        return cls(
            dict(clients or {}), priced, dict(windows or {}), client_options or {}, variables
        )

    def info(self, name: str, known: ModelInfo) -> ModelInfo:
        """Return what is known about a model; what the caller specified takes precedence."""
        if name in self.prices:
            known = replace(known, price=self.prices[name])
        if name in self.windows:
            known = replace(known, window_tokens=self.windows[name])
        return known

    def sending_options(self, name: str) -> dict[str, Any]:
        """Return the options of a model that every client understands; raise for a wrong value."""
        given = self.client_options.get(name, {})
        found = {option: given[option] for option in SENDING_OPTIONS if option in given}
        attempts, seconds = found.get("max_attempts", 1), found.get("timeout_seconds")
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise ConfigError(f"max_attempts of {name} must be 1 or more, not {attempts!r}")
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and 0 < seconds < math.inf):
            raise ConfigError(f"timeout_seconds of {name} must be a positive number")
        return found

    def identity(self, provider: str, options: Mapping[str, Any]) -> str:
        """Return a digest of the server: its provider, its address and what determines replies.

        Keys are left out: they determine who pays, not the reply.
        """
        known = registry.PROVIDERS.get(provider)
        variables = known.base_url_variables if known else ()
        given = {name: value for name, value in options.items() if name != "api_key"}
        deciding = [*variables, "AZURE_OPENAI_API_VERSION"]
        if known and known.is_aws:
            from rlm.clients._aws import REGION_VARIABLES

            deciding += REGION_VARIABLES
        address = [self.variables.get(name) for name in deciding]
        whole = msgspec.json.encode(
            [provider, address, given], order="deterministic", enc_hook=repr
        )
        return hashlib.sha256(whole).hexdigest()


class Resources:
    """What one `RLM` object keeps between runs: routes to models, environment, tools, journal.

    Everything is found and checked on creation, so that mistakes show before a run starts.
    `model`, `sub_model` and `models` are the names of its models.
    """

    def __init__(
        self,
        *,
        model: Model,
        sub_model: Model | None,
        models: Sequence[Model],
        settings: ModelSettings,
        policy: CallPolicy,
        environment: str | Environment,
        environment_kwargs: Mapping[str, Any] | None,
        tools: Any,
        sub_tools: Any,
        journal: bool | str | Path | None,
    ) -> None:
        self.archive = _archive(journal, settings.variables)
        self.after_cell: AfterCell | None = None
        self.routes: dict[str, Route] = {}
        self._settings = settings
        self._policy = policy
        self._cache = as_cache(policy.cache, settings.variables)
        self._calls: WeakKeyDictionary[asyncio.AbstractEventLoop, Calls] = WeakKeyDictionary()
        self._warnings: set[str] = set()
        self._close_later()
        self.model = self._add(model)
        self.sub_model = self.model if sub_model is None else self._add(sub_model)
        self.models = tuple(map(self._add, models))
        self._check_names()
        self.environment = _environment(environment, environment_kwargs)
        self._environment_kwargs = {
            name: value
            for name, value in (environment_kwargs or {}).items()
            if not _SECRET.search(name)
        }
        self.grant(tools, sub_tools)

    def _close_later(self) -> None:
        """Arrange for unclosed clients to be closed with this object, or at exit."""
        self._finalizer = weakref.finalize(self, _close_on_portal, self.routes)
        self._finalizer.atexit = False  # at exit, `_close_all` does it and waits
        _open.add(self)

    def _add(self, model: Model) -> str:
        """Find the route to a model; return the name by which it is known from now on."""
        names: tuple[str, ...]
        if isinstance(model, str):
            name = model
            client, wire_name, provider, identity = self._client_of(model)
            names = tuple(dict.fromkeys((name, f"{provider}/{wire_name}", provider)))
        else:
            client, name = _as_client(model)
            wire_name, identity = name, ClientTraits.of(client).identity
            if name in self.routes and self.routes[name].client is not client:
                name = f"{name}-{len(self.routes)}"
            names = (name,)
        info = self._settings.info(name, client.info(wire_name))
        if isinstance(model, str):
            warn_if_unknown(name, info, prompts.UNKNOWN_WINDOW_TOKENS)
        if self._cache is not None and identity is None:
            raise ConfigError(
                f"cache= can't tell replies of {name} from those of other servers: give its client "
                "an attribute `identity`, a string that changes with its configuration"
            )
        sending = {"max_attempts": ClientTraits.of(client).max_attempts}
        sending |= self._settings.sending_options(name)
        self.routes[name] = Route(client, wire_name, info, identity, names, **sending)
        return name

    def _client_of(self, model: str) -> tuple[Client, str, str, str | None]:
        """Return the client of a named model, its wire name, its provider and its identity."""
        provider, _, wire_name = model.partition("/")
        if provider in self._settings.clients and wire_name:
            client = self._settings.clients[provider]
            return client, wire_name, provider, ClientTraits.of(client).identity
        options = {
            option: value
            for option, value in self._settings.client_options.get(model, {}).items()
            if option not in SENDING_OPTIONS
        }
        client, wire_name = registry.make_client(model, self._settings.variables, **options)
        provider = registry.split_model(model)[0]
        identity = ClientTraits.of(client).identity or self._settings.identity(provider, options)
        return client, wire_name, provider, identity

    def _check_names(self) -> None:
        """Refuse prices, windows and rate limits of models that are not used."""
        given = {"prices": self._settings.prices, "windows": self._settings.windows}
        for what, by_model in given.items():
            if unused := sorted(by_model.keys() - self.routes.keys()):
                raise ConfigError(f"{what}= names {unused[0]!r}; models: {', '.join(self.routes)}")
        known = {name for route in self.routes.values() for name in route.names}
        if unused := sorted(self._policy.rate_limits.keys() - known):
            listed = ", ".join(sorted(known))
            raise ConfigError(f"rate_limits= names {unused[0]!r}; models and providers: {listed}")

    def info(self, model: str) -> ModelInfo:
        """Return what is known about one of the models."""
        return self.routes[model].info

    def grant(self, tools: Any, sub_tools: Any = None) -> None:
        """Set what cells may call from the next run on; children get `sub_tools`, if given."""
        self._toolset = _toolset(tools)
        self._child_toolset = self._toolset if sub_tools is None else _toolset(sub_tools)

    async def store(
        self, context: ContextValue | StoredContext, config: RunConfig
    ) -> StoredContext:
        """Read, describe and measure a context, and lay it out for the sandbox.

        Small contexts are stored at once, larger ones in threads. The hash of a large context is
        computed during the run.
        """
        if isinstance(context, StoredContext):
            return context
        if context is None or (isinstance(context, str) and len(context) < SMALL_CONTEXT_CHARS):
            return store_context(context)
        stored = await in_thread(store_context, context)
        self._warn_of_losses(stored)
        await asyncio.gather(
            asyncio.to_thread(lambda: stored.known_sha256), self._share_early(stored, config)
        )
        return stored

    def _warn_of_losses(self, stored: StoredContext) -> None:
        """Log once which files were not read; the rows of a batch often share a folder."""
        for warning in stored.warnings:
            if warning not in self._warnings and len(self._warnings) < MAX_WARNINGS:
                self._warnings.add(warning)
                _log.warning("%s", warning)

    async def _share_early(self, stored: StoredContext, config: RunConfig) -> None:
        if config.strategy == "rlm":
            with suppress(SessionError):  # Opening the session will report it.
                await self.environment.prepare(stored)

    async def decide_environment(self) -> None:
        """Let `auto` choose, so that the run is recorded with its actual environment.

        Another environment that can't be used is refused, so that no run is recorded.
        """
        if isinstance(self.environment, AutoEnvironment):
            await self.environment.decide()
        elif (problem := await refusal(self.environment)) is not None:
            raise ConfigError(problem)

    def check_recorded(self, recorded: str | None, run_id: str) -> None:
        """Refuse to resume a run in an environment other than the one that `auto` chose before."""
        chosen = self.environment
        if recorded and isinstance(chosen, AutoEnvironment) and recorded != chosen.name:
            raise ConfigError(
                f"run {run_id} began in the environment {recorded!r}, and 'auto' chooses "
                f"{chosen.name!r} here now: pass environment={recorded!r} to continue it"
            )

    def settings(self, config: RunConfig, answer_schema: dict[str, Any] | None) -> dict[str, Any]:
        """Return what is needed to run a task again, as plain values without secrets.

        `own` lists what exists only in this program: clients, functions, environments.
        """
        own = [name for name, route in self.routes.items() if len(route.names) == 1]
        own += [
            name
            for name in self._settings.clients
            if any(model.startswith(f"{name}/") for model in self.routes)
        ]
        toolset = self._toolset
        tools = [{"name": t.name, "description": t.description} for t in toolset.tools]
        built = msgspec.to_builtins(
            {
                "config": replace(
                    config,
                    sampling=recordable(config.sampling),
                    sub_sampling=recordable(config.sub_sampling),
                ),
                "environment": self.environment.name,
                **self._reason_of_environment(),
                "environment_kwargs": self._environment_kwargs,
                "infos": {name: route.info for name, route in self.routes.items()},
                "tools": tools,
                "values": sorted(toolset.values),
                "answer_schema": answer_schema,
                "own": sorted(own),
            },
            str_keys=True,
            enc_hook=repr,
        )
        # Not msgspec's JSON, which refuses lone surrogates; numbers that JSON lacks become None.
        plain: dict[str, Any] = json.loads(json.dumps(built), parse_constant=lambda _: None)
        return plain

    def _reason_of_environment(self) -> dict[str, str]:
        """Return why `auto` did not make its usual choice, to be recorded with the run."""
        chosen = self.environment
        if not isinstance(chosen, AutoEnvironment) or not chosen.reason:
            return {}
        return {"environment_reason": f"auto {chosen.reason}"}

    def new_storage(self, model: str) -> "ChatStorage":
        """Return the storage that saves and loads a chat."""
        from rlm.chat import ChatStorage

        environment = self.environment
        return ChatStorage(
            model=model,
            environment=environment.name,
            may_read=environment.is_sandbox,
            tools=lambda: [tool.name for tool in self._toolset.tools],
        )

    def services(self) -> Services:
        """Return what a run and its child runs share; after `close`, it is opened again."""
        if not self._finalizer.alive:
            self._close_later()
        toolsets = self._toolset, self._child_toolset
        return Services(self._calls_of_loop(), self.environment, *toolsets, self.after_cell)

    async def close(self) -> None:
        self._finalizer.detach()
        _open.discard(self)
        self._calls.pop(asyncio.get_running_loop(), None)
        await _close_clients(self.routes)
        if tools := (*self._toolset.tools, *self._child_toolset.tools):
            from rlm.tools import release_tools

            await release_tools(tools)
        if self._cache is not None:
            await self._cache.close()
        await self.environment.close()

    def _calls_of_loop(self) -> Calls:
        """Return the calls of the running loop; schedulers can't be shared between loops."""
        loop = asyncio.get_running_loop()
        known = self._calls.get(loop)
        if known is None:
            known = self._calls[loop] = Calls(
                self.routes.__getitem__,
                Scheduler(self._policy.max_concurrent_calls, self._policy.rate_limits),
                cache=self._cache,
                hedge_after_seconds=self._policy.hedge_after_seconds,
            )
        return known


_open: "weakref.WeakSet[Resources]" = weakref.WeakSet()
"""Resources that are not closed yet; many programs never close them."""


async def _close_clients(routes: Mapping[str, Route]) -> None:
    for client in {id(route.client): route.client for route in routes.values()}.values():
        await client.close()


def _close_on_portal(routes: Mapping[str, Route]) -> None:
    if (found := existing_portal()) is not None:
        found.close_later(lambda: _close_clients(routes))


def _close_all() -> None:
    for resources in list(_open):
        _close_on_portal(resources.routes)
    if (found := existing_portal()) is not None:
        found.wait_for_closing()


atexit.register(_close_all)


def _as_client(model: Any) -> tuple[Client, str]:
    """Return the client and its name; functions and adapters get their own client."""
    if hasattr(model, "complete"):
        name = ClientTraits.of(model).model_name or type(model).__name__
        if hasattr(model, "stream") or hasattr(model, "info"):
            return model, name
        from rlm.clients.completing import client_of_adapter

        return client_of_adapter(model), name
    from rlm.clients.callable import CallableClient

    return CallableClient(model), getattr(model, "__name__", type(model).__name__)


def _archive(journal: bool | str | Path | None, variables: Mapping[str, str]) -> "Archive | None":
    """Return where runs are journaled: in the usual folder, another folder, or nowhere."""
    if journal is None or journal is False:
        return None
    from rlm.records.journal import Archive, Places

    if journal is True:
        return Archive(Places.usual(variables))
    if not isinstance(journal, str | Path) or not str(journal):
        raise ConfigError(f"journal must be True or a folder, not {journal!r}")
    return Archive(Places(Path(journal).expanduser().absolute()))


def _as_price(name: str, given: tuple[float, float] | Price) -> Price:
    if isinstance(given, Price):
        return given
    try:
        return Price(*given)
    except TypeError:
        raise ConfigError(
            f"prices[{name!r}] must be (input, output) in US dollars per million tokens, "
            f"not {given!r}"
        ) from None


def _environment(given: str | Environment, options: Mapping[str, Any] | None) -> BaseEnvironment:
    if isinstance(given, str):
        return with_defaults(registry.make_environment(given, options or {}))
    if options:
        raise ConfigError("environment_kwargs needs the name of an environment")
    return with_defaults(given)


def _toolset(given: Any) -> Toolset:
    """Return tools, which stay on the host, and plain values, which become REPL variables."""
    if given is None:
        return Toolset()
    from rlm.tools import as_tools, describe_values

    tools, values = as_tools(given)
    stored = {name: ReplValue.of(value) for name, value in values.items()}
    return Toolset(tools, stored, describe_values(given))
