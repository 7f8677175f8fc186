"""`class RLM`: the door most people use. Wiring only; the loop is in engine.py."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from rlm import registry
from rlm.calls import Calls, Route
from rlm.config import Guards, RunConfig
from rlm.context import ContextValue, store_context
from rlm.engine import Engine, Services
from rlm.errors import ConfigError
from rlm.events import Event
from rlm.limits import Budget, Limits
from rlm.mapreduce import map_reduce
from rlm.messages import Price
from rlm.portal import portal
from rlm.prompts import FIXED_QUERY
from rlm.protocols import Client, Environment, Recorder, ReplyStore
from rlm.recorders.memory import MemoryRecorder
from rlm.results import RunResult
from rlm.run import Run, Task
from rlm.scheduler import Scheduler
from rlm.scope import Scope, Tree, new_run_id
from rlm.strategies import PlainRun, choose_strategy

__all__ = ["RLM"]


class RLM:
    """Right answers about contexts far larger than the model's window.

    `RLM("provider/model").ask(query, context)`. `clients={"mine": client}` adds a provider of
    your own, used as "mine/model"; a Client object may also stand in place of a model's name.
    """

    def __init__(
        self,
        model: str | Client | None = None,
        *,
        sub_model: str | Client | None = None,
        models: Sequence[str | Client] = (),
        clients: Mapping[str, Client] | None = None,
        environment: str | Environment = "local",
        limits: Limits | None = None,
        strategy: Literal["rlm", "direct", "mapreduce", "auto"] = "rlm",
        protocol: Literal["fences", "tools"] = "fences",
        profile: Literal["frontier", "standard", "small", "tiny"] | None = None,
        guards: Guards | None = None,
        system_prompt: str | None = None,
        preview_chars: int = 0,
        sampling: dict[str, Any] | None = None,
        sub_sampling: dict[str, Any] | None = None,
        compaction: bool = True,
        prices: dict[str, tuple[float, float]] | None = None,
        recorders: Sequence[Recorder] = (),
        store: ReplyStore | None = None,
        seed: int = 0,
    ) -> None:
        self._routes: dict[str, Route] = {}
        self._clients = dict(clients or {})
        self._prices = {name: Price(*pair) for name, pair in (prices or {}).items()}
        root = self._adopt(model if model is not None else _model_from_environment())
        self.config = RunConfig(
            model=root,
            sub_model=root if sub_model is None else self._adopt(sub_model),
            models=tuple(self._adopt(name) for name in models),
            limits=limits or Limits(),
            guards=guards or Guards(),
            strategy=strategy,
            protocol=protocol,
            profile=profile,
            system_prompt=system_prompt,
            preview_chars=preview_chars,
            sampling=sampling or {},
            sub_sampling=sub_sampling or {},
            compaction=compaction,
            seed=seed,
        )
        if unused := sorted(self._prices.keys() - self._routes.keys()):
            raise ConfigError(f"prices= names {unused[0]!r}; models: {', '.join(self._routes)}")
        if isinstance(environment, str):
            environment = registry.make_environment(environment)
        self.environment: Environment = environment
        self._recorders = tuple(recorders)
        self._store = store
        self._running: dict[str, tuple[Run, asyncio.AbstractEventLoop]] = {}
        self._services: WeakKeyDictionary[asyncio.AbstractEventLoop, Services] = WeakKeyDictionary()

    # -- asking ------------------------------------------------------------------------------

    async def aask(
        self, query: str, context: ContextValue = None, *, recorders: Sequence[Recorder] = ()
    ) -> RunResult:
        """Answer `query` about `context`; ends with the best answer at every limit."""
        services = self._services_here()
        config = self.config
        services.calls.check_prices((config.model, config.sub_model, *config.models), config.limits)
        memory = MemoryRecorder()
        scope = Scope(
            run_id=new_run_id(),
            budget=Budget(config.limits),
            recorders=(memory, *self._recorders, *recorders),
            tree=Tree(config.limits.max_child_sessions),
        )
        task = Task(query, store_context(context))
        strategy = choose_strategy(services.calls, task, config)
        runner: Engine | PlainRun
        if strategy == "rlm":
            runner = Engine(services, config, scope, task)
        else:
            runner = PlainRun(services.calls, config, scope, task, strategy)
        self._running[scope.run_id] = runner.state, asyncio.get_running_loop()
        try:
            result = await runner.run()
        finally:
            del self._running[scope.run_id]
        return replace(result, events=tuple(memory.events))

    def ask(self, query: str, context: ContextValue = None) -> RunResult:
        """The blocking form of `aask`; works in scripts, threads and notebooks alike."""
        return portal().call(lambda: self.aask(query, context))

    async def acompletion(self, prompt: ContextValue, root_prompt: str | None = None) -> RunResult:
        """The prompt is the context; with no `root_prompt`, the task is read from it."""
        return await self.aask(FIXED_QUERY if root_prompt is None else root_prompt, prompt)

    def completion(self, prompt: ContextValue, root_prompt: str | None = None) -> RunResult:
        """The blocking form of `acompletion`."""
        return portal().call(lambda: self.acompletion(prompt, root_prompt))

    async def stream(self, query: str, context: ContextValue = None) -> AsyncGenerator[Event, None]:
        """Every event of a run while it goes on; leaving the loop cancels the run."""
        queue = _QueueRecorder()
        run = asyncio.ensure_future(self.aask(query, context, recorders=(queue,)))
        run.add_done_callback(lambda _: queue.events.put_nowait(None))
        try:
            while (event := await queue.events.get()) is not None:
                yield event
            await run
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)

    def stop(self) -> None:
        """Ask every run of this object to end now with its best answer; safe from any thread."""
        for run, loop in list(self._running.values()):
            loop.call_soon_threadsafe(run.stop)

    # -- closing -----------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close connections and sessions of this event loop."""
        self._services.pop(asyncio.get_running_loop(), None)
        for route in {id(r.client): r for r in self._routes.values()}.values():
            await route.client.close()
        await self.environment.close()

    def close(self) -> None:
        portal().call(self.aclose)

    def __enter__(self) -> "RLM":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- wiring ------------------------------------------------------------------------------

    def _services_here(self) -> Services:
        """Schedulers belong to one event loop, so each loop gets its own."""
        loop = asyncio.get_running_loop()
        known = self._services.get(loop)
        if known is not None:
            return known
        scheduler = Scheduler(self.config.limits.max_concurrent_calls)
        calls = Calls(self._routes.__getitem__, scheduler, self._store)

        async def fallback(task: Task, scope: Scope, config: RunConfig) -> str | None:
            return await map_reduce(calls, task, scope, config)

        services = Services(calls, self.environment, fallback=fallback)
        self._services[loop] = services
        return services

    def _adopt(self, model: str | Client) -> str:
        """Find the way to a model once, at the start, so that mistakes show before a run does."""
        if isinstance(model, str):
            name = model
            provider, _, wire_name = model.partition("/")
            if provider in self._clients and wire_name:
                client = self._clients[provider]
            else:
                client, wire_name = registry.make_client(model)
        else:
            name = wire_name = type(model).__name__
            client = model
            if name in self._routes and self._routes[name].client is not model:
                name = f"{name}-{len(self._routes)}"
        info = client.info(wire_name)
        if name in self._prices:
            info = replace(info, price=self._prices[name])
        self._routes[name] = Route(client, wire_name, info)
        return name


class _QueueRecorder:
    def __init__(self) -> None:
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()

    def record(self, event: Event) -> None:
        self.events.put_nowait(event)


def _model_from_environment() -> str:
    if model := os.environ.get("RLM_MODEL"):
        return model
    raise ConfigError("no model: pass RLM('provider/model') or set RLM_MODEL=provider/model")
