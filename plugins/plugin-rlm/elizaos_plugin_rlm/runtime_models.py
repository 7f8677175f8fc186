"""elizaOS as the backend: the models of a runtime's other plugins answer what the engine asks."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from rlm import ModelError
from rlm.messages import Message, ModelInfo, Reply, Request, Usage

from elizaos_plugin_rlm.engines import EngineUnavailable, told
from elizaos_plugin_rlm.generation import SAMPLING_NAMES
from elizaos_plugin_rlm.settings import Runtime

__all__ = ["OWN_NAMES", "RuntimeModels"]

OWN_NAMES = frozenset({"plugin-rlm", "rlm"})
"""Asking these would be asking ourselves, without end."""

BYTES_A_TOKEN = 4
SPEAKERS = {"assistant": "Assistant", "tool": "Tool", "user": "User"}
ELIZA_NAMES = {ours: theirs for theirs, ours in SAMPLING_NAMES.items()}


class RuntimeModels:
    """A client of the engine; what it calls a model is a model type of elizaOS.

    Handlers return text alone, so tokens are estimated and prices are unknown.
    """

    def __init__(self, runtime: Runtime, provider: str = "") -> None:
        self._runtime = runtime
        self._provider = provider

    def check(self, model_type: str) -> None:
        """Raise if nobody but us answers for this model type."""
        self._provider_of(model_type)

    def smaller(self) -> str:
        """The type for the many small questions, if somebody has it."""
        try:
            self.check("TEXT_SMALL")
        except EngineUnavailable:
            return "TEXT_LARGE"
        return "TEXT_SMALL"

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """One question to the runtime."""
        params = _params(request)
        try:
            async with asyncio.timeout(timeout_seconds):
                provider = self._provider_of(request.model)
                answer = await self._runtime.use_model(request.model, params, provider=provider)
        except TimeoutError as error:
            text = f"elizaOS did not answer {request.model} within {timeout_seconds:g} s"
            raise ModelError(text, retryable=True, ambiguous=True, timed_out=True) from error
        except Exception as error:
            raise ModelError(f"{request.model} of elizaOS failed: {told(error)}") from error
        if not isinstance(answer, str):
            kind = type(answer).__name__
            raise ModelError(f"{request.model} of elizaOS returned no text, but {kind}")
        usage = Usage(
            input_tokens=_tokens(params["prompt"] + params.get("system", "")),
            output_tokens=min(_tokens(answer), request.max_output_tokens),
            requests=1,
        )
        return Reply(text=answer, usage=usage, model=request.model)

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """The whole reply in one piece."""
        reply = await self.complete(request, timeout_seconds=timeout_seconds)
        yield reply.text
        yield reply

    def info(self, model: str) -> ModelInfo:
        return ModelInfo()

    async def close(self) -> None:
        """The models are the runtime's, and stay open."""

    def _provider_of(self, model_type: str) -> str:
        """Whom to ask: who was named, else the first plugin besides us that answers for it."""
        if self._provider in OWN_NAMES:
            raise EngineUnavailable("ELIZA_RLM_PROVIDER must name another plugin than this one")
        if self._provider:
            return self._provider
        for plugin in self._runtime.plugins:
            if plugin.name not in OWN_NAMES and model_type in (
                getattr(plugin, "models", None) or ()
            ):
                return str(plugin.name)
        raise EngineUnavailable(
            f"no other plugin of this runtime answers for {model_type}: load one, or name the "
            "provider of a model that was registered by hand in ELIZA_RLM_PROVIDER"
        )


def _params(request: Request) -> dict[str, Any]:
    """The request as elizaOS spells one: most of its plugins read a prompt and a system text."""
    system = "\n\n".join(_text(each) for each in request.messages if each.role == "system")
    turns = [each for each in request.messages if each.role != "system"]
    if len(turns) == 1:
        prompt = _text(turns[0])
    else:
        spoken = [f"{SPEAKERS[each.role]}:\n{_text(each)}" for each in turns]
        prompt = "\n\n".join([*spoken, "Assistant:"])
    params: dict[str, Any] = {"prompt": prompt, **_controls(request.sampling)}
    params["maxTokens"] = min(request.max_output_tokens, params.get("maxTokens", 10**9))
    return {**params, "system": system} if system else params


def _controls(sampling: Mapping[str, Any]) -> dict[str, Any]:
    return {ELIZA_NAMES.get(name, name): value for name, value in sampling.items()}


def _text(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join(str(part["text"]) for part in message.content if "text" in part)


def _tokens(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN + 1
