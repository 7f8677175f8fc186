"""Any model of Inspect as a client of the engine."""

from collections.abc import Mapping
from typing import Any

from inspect_ai.model import GenerateConfig, Model, get_model
from inspect_ai.util import LimitExceededError, span

from recursivelm_inspect.messages import as_messages, as_reply, as_tools
from rlm import models
from rlm.clients.callable import CallableClient
from rlm.errors import ConfigError, ModelError
from rlm.messages import Reply, Request
from rlm.protocols import current_call

__all__ = ["InspectClient"]

SETTINGS = {
    "extra_body": "extra_body",
    "extra_headers": "extra_headers",
    "frequency_penalty": "frequency_penalty",
    "logit_bias": "logit_bias",
    "presence_penalty": "presence_penalty",
    "reasoning_effort": "reasoning_effort",
    "seed": "seed",
    "stop": "stop_seqs",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
}
"""Sampling options of the engine, and what Inspect calls them."""

CAPS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class InspectClient(CallableClient):
    """Answer with a model of Inspect: an object, a name, or None for the one being evaluated.

    Every request is a model event of the log, inside a span that names its step. Inspect retries by
    itself, so the engine does not. `limit_reached` is the limit of Inspect that refused
    a request; the code that started the run raises it again, because the engine only reports it.
    """

    max_attempts = 1

    def __init__(self, model: Model | str | None = None, *, role: str | None = None) -> None:
        self._model = _found(model, role)
        self.model_name = str(self._model)
        self.limit_reached: LimitExceededError | None = None
        provider, _, name = self.model_name.partition("/")
        super().__init__(self._answer, info=models.about(provider, name))

    @classmethod
    def for_model(cls, model: str, *, config: Mapping[str, Any] | None = None) -> "InspectClient":
        """Return the client of `RLM("inspect/openai/gpt-5-mini")`."""
        if not config:
            return cls(model)
        return cls(get_model(model, config=GenerateConfig(**config)))

    def __repr__(self) -> str:
        return f"InspectClient({self.model_name!r})"

    def is_same_as(self, other: "InspectClient") -> bool:
        """Return whether both ask the same model."""
        return self._model is other._model

    async def _answer(self, request: Request) -> Reply:
        config = self._config(request)
        try:
            async with span(_place(), type="rlm"):
                output = await self._model.generate(
                    as_messages(request.messages), tools=as_tools(request.tools), config=config
                )
        except LimitExceededError as error:
            self.limit_reached = error
            raise ModelError(f"{request.model}: {error.message}") from error
        return as_reply(output)

    def _config(self, request: Request) -> GenerateConfig:
        sampling = {name: value for name, value in request.sampling.items() if value is not None}
        caps = [
            request.max_output_tokens,
            *(sampling.pop(name) for name in CAPS if name in sampling),
        ]
        if self._model.config.max_tokens is not None:
            caps.append(self._model.config.max_tokens)
        settings: dict[str, Any] = {"max_tokens": min(caps)}
        for name, value in sampling.items():
            if name not in SETTINGS:
                known = ", ".join(SETTINGS)
                raise ConfigError(f"Inspect has no setting for {name!r}; options: {known}")
            is_text = name == "stop" and isinstance(value, str)
            settings[SETTINGS[name]] = [value] if is_text else value
        return GenerateConfig(**settings)


def _place() -> str:
    """Return where a request belongs: a step or a call, and how deep its run is."""
    call = current_call()
    if call is None:
        return "rlm"
    depth = call.path.count("/")
    return f"rlm step {call.step}: {call.kind}" + (f", depth {depth}" if depth else "")


def _found(model: Model | str | None, role: str | None) -> Model:
    try:
        return get_model(model, role=role) if role is not None else get_model(model)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"Inspect has no model {model or role!r}: {error}") from error
