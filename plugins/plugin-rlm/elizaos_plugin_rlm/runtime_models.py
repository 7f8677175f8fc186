"""The backend elizaos: the models of a runtime's other plugins answer the engine's requests."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from rlm import ModelError
from rlm.messages import Message, ModelInfo, Reply, Request, Usage

from elizaos_plugin_rlm.engines import EngineUnavailable, error_line
from elizaos_plugin_rlm.generation import SAMPLING_NAMES
from elizaos_plugin_rlm.settings import Runtime

__all__ = ["OWN_NAMES", "RuntimeModels"]

OWN_NAMES = frozenset({"plugin-rlm", "rlm"})
"""Names of this plugin; calling it from itself would never end."""

BYTES_PER_TOKEN = 4
SPEAKERS = {"assistant": "Assistant", "tool": "Tool", "user": "User"}
ELIZA_NAMES = {ours: theirs for theirs, ours in SAMPLING_NAMES.items()}


class RuntimeModels:
    """A client of the engine whose models are the model types of elizaOS.

    Handlers return only text, so tokens are estimated and prices are unknown.
    """

    def __init__(self, runtime: Runtime, provider: str = "") -> None:
        self._runtime = runtime
        self._provider = provider

    def check(self, model_type: str) -> None:
        """Raise EngineUnavailable if no other plugin offers this model type."""
        self._provider_of(model_type)

    def smaller(self) -> str:
        """Return the model type for calls: TEXT_SMALL if a plugin offers it."""
        try:
            self.check("TEXT_SMALL")
        except EngineUnavailable:
            return "TEXT_LARGE"
        return "TEXT_SMALL"

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """Send one request to the runtime."""
        params = _params(request)
        try:
            async with asyncio.timeout(timeout_seconds):
                provider = self._provider_of(request.model)
                answer = await self._runtime.use_model(request.model, params, provider=provider)
        except TimeoutError as error:
            text = (
                f"elizaOS did not answer a request for {request.model} within {timeout_seconds:g} s"
            )
            raise ModelError(text, retryable=True, ambiguous=True, timed_out=True) from error
        except Exception as error:
            raise ModelError(f"{request.model} of elizaOS failed: {error_line(error)}") from error
        if not isinstance(answer, str):
            kind = type(answer).__name__
            raise ModelError(f"{request.model} of elizaOS returned {kind}, not text")
        usage = Usage(
            input_tokens=_tokens(params["prompt"] + params.get("system", "")),
            output_tokens=min(_tokens(answer), request.max_output_tokens),
            requests=1,
        )
        return Reply(text=answer, usage=usage, model=request.model)

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """Yield the whole reply in one piece."""
        reply = await self.complete(request, timeout_seconds=timeout_seconds)
        yield reply.text
        yield reply

    def info(self, model: str) -> ModelInfo:
        return ModelInfo()

    async def close(self) -> None:
        """Do nothing: the models belong to the runtime."""

    def _provider_of(self, model_type: str) -> str:
        """Return the configured provider, or the first other plugin that offers the model type."""
        if self._provider in OWN_NAMES:
            raise EngineUnavailable("ELIZA_RLM_PROVIDER must name a plugin other than this one")
        if self._provider:
            return self._provider
        for plugin in self._runtime.plugins:
            if plugin.name not in OWN_NAMES and model_type in (
                getattr(plugin, "models", None) or ()
            ):
                return str(plugin.name)
        raise EngineUnavailable(
            f"no other plugin of this runtime offers {model_type}: load one, or name the "
            "provider of a model registered by hand in ELIZA_RLM_PROVIDER"
        )


def _params(request: Request) -> dict[str, Any]:
    """Return the request in elizaOS's form; most plugins read a prompt and a system text."""
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
    return len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN + 1
