"""What one `RLM` object keeps: the way to each model, its environment, its tools."""

import asyncio
import atexit
import json
import weakref
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from rlm import registry
from rlm.calls import Calls, Route
from rlm.config import RunConfig
from rlm.context import StoredContext
from rlm.errors import ConfigError
from rlm.mapreduce import map_reduce
from rlm.messages import Price
from rlm.portal import existing_portal
from rlm.protocols import Client, Environment, ReplyStore, Tool
from rlm.run import Services, Task
from rlm.scheduler import Scheduler
from rlm.scope import Scope
from rlm.tools import as_tools, describe_values

__all__ = ["House"]


class House:
    """Found and checked once, at the start, so that mistakes show before a run does."""

    def __init__(
        self,
        clients: Mapping[str, Client] | None,
        prices: Mapping[str, tuple[float, float]] | None,
        client_options: Mapping[str, Mapping[str, Any]] | None,
        variables: Mapping[str, str],
        store: ReplyStore | None,
    ) -> None:
        self._clients = dict(clients or {})
        self._prices = {name: Price(*pair) for name, pair in (prices or {}).items()}
        self._client_options = client_options or {}
        self._variables = variables
        self._store = store
        self._routes: dict[str, Route] = {}
        self._services: WeakKeyDictionary[asyncio.AbstractEventLoop, Services] = WeakKeyDictionary()
        self._last_resort = weakref.finalize(self, _close_on_portal, self._routes)
        self._last_resort.atexit = False  # then `_close_all` does it, and waits
        _open.add(self)

    def adopt(self, model: str | Client) -> str:
        """Find the way to a model; the name it goes by from now on."""
        if isinstance(model, str):
            name = model
            provider, _, wire_name = model.partition("/")
            if provider in self._clients and wire_name:
                client = self._clients[provider]
            else:
                options = self._client_options.get(model, {})
                client, wire_name = registry.make_client(model, self._variables, **options)
        else:
            client, name = model, type(model).__name__
            wire_name = name
            if name in self._routes and self._routes[name].client is not model:
                name = f"{name}-{len(self._routes)}"
        info = client.info(wire_name)
        if name in self._prices:
            info = replace(info, price=self._prices[name])
        self._routes[name] = Route(client, wire_name, info)
        return name

    def furnish(
        self,
        environment: str | Environment,
        environment_kwargs: Mapping[str, Any] | None,
        config: RunConfig,
        tools: Any,
        sub_tools: Any,
    ) -> None:
        """Take in where cells run and what they may call. Children get `sub_tools`, if given."""
        if unused := sorted(self._prices.keys() - self._routes.keys()):
            raise ConfigError(f"prices= names {unused[0]!r}; models: {', '.join(self._routes)}")
        if isinstance(environment, str):
            environment = registry.make_environment(environment, environment_kwargs or {})
        elif environment_kwargs:
            raise ConfigError("environment_kwargs goes with the name of an environment")
        self._environment: Environment = environment
        self._max_concurrent_calls = config.limits.max_concurrent_calls
        self._own = _granted(tools)
        self._childrens = self._own if sub_tools is None else _granted(sub_tools)

    def services(self) -> Services:
        """Schedulers belong to one event loop, so each loop gets its own services."""
        loop = asyncio.get_running_loop()
        known = self._services.get(loop)
        if known is None:
            known = self._services[loop] = self._new_services()
        return known

    async def close(self) -> None:
        self._last_resort.detach()
        _open.discard(self)
        self._services.pop(asyncio.get_running_loop(), None)
        await _close_clients(self._routes)
        await self._environment.close()

    def _new_services(self) -> Services:
        calls = Calls(self._routes.__getitem__, Scheduler(self._max_concurrent_calls), self._store)

        async def fallback(task: Task, scope: Scope, config: RunConfig) -> str | None:
            return await map_reduce(calls, task, scope, config)

        children = Services(calls, self._environment, *self._childrens, fallback=fallback)
        return Services(calls, self._environment, *self._own, children, fallback)


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


def _granted(given: Any) -> tuple[tuple[Tool, ...], dict[str, StoredContext], tuple[str, ...]]:
    """Functions stay on the host; plain values become variables in the REPL, and are described."""
    tools, values = as_tools(given)
    stored = {name: _stored(value) for name, value in values.items()}
    return tools, stored, describe_values(given)


def _stored(value: Any) -> StoredContext:
    """Any JSON value: a number or a flag is no context, but may be a variable."""
    return StoredContext("json", json.dumps(value).encode(), "")
