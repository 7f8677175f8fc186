"""The reference's clients: a `BaseLM` as one of our models, and our models as a `BaseLM`."""

import asyncio
import os
import threading
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from rlm.clients.callable import CallableClient
from rlm.compat.backends import read_backend
from rlm.compat.base_lm import DEFAULT_TIMEOUT, BaseLM
from rlm.compat.types import ModelUsage, UsageTotals
from rlm.config import RunConfig
from rlm.context import store_context
from rlm.engine.bridge import SUB_CALL_SYSTEM
from rlm.engine.strategies import Relayed
from rlm.engine.task import Task
from rlm.errors import ConfigError, ModelError
from rlm.limits import Budget, Limits
from rlm.messages import Message, Reply, Request, Usage
from rlm.portal import portal
from rlm.prompts import FIXED_QUERY
from rlm.results import RunResult
from rlm.wiring.listeners import Listeners
from rlm.wiring.resources import CallPolicy, ModelSettings, Resources
from rlm.wiring.runner import Runner

__all__ = [
    "DEFAULT_TIMEOUT",
    "AzureOpenAIClient",
    "BaseLM",
    "LMClient",
    "ModelClient",
    "OpenAIClient",
    "PortkeyClient",
    "get_client",
]

Prompt = str | list[dict[str, Any]]


class LMClient(CallableClient):
    """A `BaseLM`, or an object with its methods, as one of our clients."""

    def __init__(self, lm: Any, name: str | None = None) -> None:
        self._lm = lm
        self._lock = threading.Lock()
        self._counted = self._total()
        known = name or getattr(lm, "model_name", None)
        self.model_name = known if isinstance(known, str) and known else type(lm).__name__
        super().__init__(self._ask)

    def __repr__(self) -> str:
        return f"LMClient({self.model_name!r})"

    def _ask(self, request: Request) -> Reply:
        if request.sampling:
            raise ConfigError(
                f"sampling can't be passed to {type(self._lm).__name__}: pass it sampling_args "
                "instead"
            )
        prompt = _prompt(request.messages)
        try:
            text = self._lm.completion(prompt)
        except NotImplementedError:
            text = asyncio.run(self._lm.acompletion(prompt))
        if not isinstance(text, str):
            kind = type(text).__name__
            raise ModelError(f"{self.model_name}: completion() returned {kind}, not a str")
        return Reply(text=text, usage=self._new_usage(), model=self.model_name)

    def _new_usage(self) -> Usage | None:
        """Return what was counted since the last reply.

        If replies arrive at the same time, one may be charged for another; the total is exact.
        """
        with self._lock:
            before, now = self._counted, self._total()
            self._counted = now
        if now is None:
            return None
        if before is None or now.total_tokens < before.total_tokens:
            return now
        cost = None if now.cost_usd is None else now.cost_usd - (before.cost_usd or 0.0)
        return replace(
            now,
            input_tokens=now.input_tokens - before.input_tokens,
            output_tokens=now.output_tokens - before.output_tokens,
            cost_usd=None if cost is None else max(0.0, round(cost, 12)),
        )

    def _total(self) -> Usage | None:
        """Return what the object has counted; None if it counts nothing that can be read."""
        try:
            totals = UsageTotals(dict(self._lm.get_usage_summary().model_usage_summaries))
            sent, written = totals.total_input_tokens, totals.total_output_tokens
            cost = totals.total_cost
        except (AttributeError, NotImplementedError, TypeError, ValueError):
            return None
        if not (isinstance(sent, int) and isinstance(written, int)):
            return None
        return Usage(sent, written, cost_usd=cost, requests=1)


def _prompt(messages: tuple[Message, ...]) -> Prompt:
    """Return a call from a cell as a text, as the reference sends it, and others as a list."""
    first, *others = messages
    if not others and isinstance(first.content, str):
        return first.content
    if len(others) == 1 and first.content == SUB_CALL_SYSTEM and isinstance(others[0].content, str):
        return others[0].content
    return [{"role": each.role, "content": each.content} for each in messages]


# -- our models behind the reference's interface --------------------------------------------------


class ModelClient(BaseLM):
    """One of our models with the methods of the reference's clients."""

    def __init__(self, backend: str, **backend_kwargs: Any) -> None:
        choice = read_backend(backend, backend_kwargs)
        named = choice.name.partition("/")[2]
        known = {"model_name", "model", "timeout", "sampling_args"}
        others = {n: each for n, each in backend_kwargs.items() if n not in known}
        timeout = backend_kwargs.get("timeout") or DEFAULT_TIMEOUT
        super().__init__(named, timeout, choice.sampling, **others)
        limits = Limits(call_seconds=timeout)
        self._backend = backend
        self._given = backend_kwargs
        self._max_output_tokens = choice.max_output_tokens or limits.step_output_tokens
        options = {choice.name: choice.options}
        self._resources = Resources(
            model=choice.model,
            sub_model=None,
            models=(),
            settings=ModelSettings.of(None, None, None, options, os.environ),
            policy=CallPolicy(),
            environment="auto",
            environment_kwargs=None,
            tools=None,
            sub_tools=None,
            journal=None,
        )
        name = self._resources.model
        self._config = RunConfig(model=name, sub_model=name, limits=limits)
        self._runner = Runner(self._config, self._resources, Listeners((), None, False))
        self._used: dict[str, Usage] = {}
        self._last = Usage()
        self._others: dict[str, ModelClient] = {}

    def completion(self, prompt: Prompt, model: str | None = None) -> str:
        """Answer a text or a list of messages, with another model of the backend if named."""
        return portal().call(lambda: self.acompletion(prompt, model))

    async def acompletion(self, prompt: Prompt, model: str | None = None) -> str:
        """Do the same as `completion`, in an event loop."""
        if model is not None and model != self.model_name:
            other = self._others.get(model)
            if other is None:
                other = ModelClient(self._backend, **{**self._given, "model_name": model})
                self._others[model] = other
            text = await other.acompletion(prompt)
            self._last = other._last
            return text
        relayed = Relayed(
            messages=_messages(prompt),
            max_output_tokens=self._max_output_tokens,
            sampling=self.sampling_args,
        )
        result, reply = await self._runner.relay(
            Task(FIXED_QUERY, store_context("")), relayed, (), self._config.limits, _ignore
        )
        return self._counted(result, reply)

    def _counted(self, result: RunResult, reply: Reply | None) -> str:
        self._last = result.usage.total
        self._used[self.model_name] = self._used.get(self.model_name, Usage()) + self._last
        if reply is None:
            raise ModelError(f"{self.model_name}: {result.detail or 'no reply'}")
        return reply.text

    def get_usage_summary(self) -> UsageTotals:
        used = dict(self._used)
        for other in self._others.values():
            used |= other._used
        return UsageTotals({name: ModelUsage.of(usage) for name, usage in used.items()})

    def get_last_usage(self) -> ModelUsage:
        return ModelUsage.of(self._last)


def _ignore(_: Budget) -> None:
    """Do nothing with the budget of one request."""


def _messages(prompt: Any) -> tuple[Message, ...]:
    if isinstance(prompt, str):
        return (Message("user", prompt),)
    if isinstance(prompt, list) and all(isinstance(each, Mapping) for each in prompt):
        return tuple(Message(each["role"], each["content"]) for each in prompt)
    raise ConfigError(f"a prompt must be a str or a list of messages, not {type(prompt).__name__}")


def get_client(backend: str, backend_kwargs: Mapping[str, Any] | None = None) -> BaseLM:
    """Return a client for one of the reference's backends, or for any of our providers."""
    return ModelClient(backend, **dict(backend_kwargs or {}))


class OpenAIClient(ModelClient):
    """OpenAI, or a server that speaks its dialect at `base_url`."""

    def __init__(
        self,
        api_key: str | None = None,
        model_name: str | None = None,
        base_url: str | None = None,
        sampling_args: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        given = {"api_key": api_key, "model_name": model_name, "base_url": base_url}
        super().__init__("openai", **given, sampling_args=sampling_args, **kwargs)


class PortkeyClient(ModelClient):
    """Portkey's gateway."""

    def __init__(
        self,
        api_key: str | None = None,
        model_name: str | None = None,
        base_url: str | None = None,
        **kwargs: Any,
    ) -> None:
        given = {"api_key": api_key, "model_name": model_name, "base_url": base_url}
        super().__init__("portkey", **given, **kwargs)


class AzureOpenAIClient(ModelClient):
    """A deployment on Azure."""

    def __init__(
        self,
        api_key: str | None = None,
        model_name: str | None = None,
        azure_endpoint: str | None = None,
        api_version: str | None = None,
        azure_deployment: str | None = None,
        **kwargs: Any,
    ) -> None:
        given = {"api_key": api_key, "model_name": model_name, "azure_endpoint": azure_endpoint}
        given |= {"api_version": api_version, "azure_deployment": azure_deployment}
        super().__init__("azure_openai", **given, **kwargs)
