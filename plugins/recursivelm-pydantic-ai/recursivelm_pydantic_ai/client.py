"""Any model of Pydantic AI as a client of the engine."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from recursivelm_pydantic_ai.messages import as_messages, as_reply
from rlm import models
from rlm.clients.callable import CallableClient
from rlm.errors import ConfigError
from rlm.messages import ModelInfo, Reply, Request

__all__ = ["PydanticAIClient"]

SETTINGS = {
    "extra_body": "extra_body",
    "extra_headers": "extra_headers",
    "frequency_penalty": "frequency_penalty",
    "logit_bias": "logit_bias",
    "presence_penalty": "presence_penalty",
    "reasoning_effort": "thinking",
    "seed": "seed",
    "stop": "stop_sequences",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
}
"""Sampling options of the engine, and what Pydantic AI calls them."""

CAPS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class PydanticAIClient(CallableClient):
    """Answer with a model of Pydantic AI: an object, or a name such as "openai:gpt-5-mini".

    `settings` are Pydantic AI's model settings for every request. The engine retries, because only
    it can pay for another attempt: retries of the provider's own package are off.
    """

    def __init__(
        self,
        model: Model | str,
        *,
        settings: ModelSettings | None = None,
        info: ModelInfo | None = None,
    ) -> None:
        self._model = _found(model)
        self._settings = dict(settings or {})
        self.model_name = f"{self._model.system}/{self._model.model_name}"
        super().__init__(self._answer, info=info or _info(self._model))

    @classmethod
    def for_model(
        cls, model: str, *, settings: Mapping[str, Any] | None = None
    ) -> "PydanticAIClient":
        """Return the client of `RLM("pydantic-ai/openai:gpt-5-mini")`."""
        return cls(model, settings=cast("ModelSettings", dict(settings or {})))

    def __repr__(self) -> str:
        return f"PydanticAIClient({self.model_name!r})"

    async def _answer(self, request: Request, *, timeout_seconds: float) -> Reply:
        tools = [
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=tool.parameters,
            )
            for tool in request.tools
        ]
        response = await model_request(
            self._model,
            as_messages(request.messages),
            model_settings=self._settings_of(request, timeout_seconds),
            model_request_parameters=ModelRequestParameters(function_tools=tools),
        )
        return as_reply(response)

    def _settings_of(self, request: Request, timeout_seconds: float) -> ModelSettings:
        settings: dict[str, Any] = dict(self._settings)
        sampling = {name: value for name, value in request.sampling.items() if value is not None}
        caps = [
            request.max_output_tokens,
            *(sampling.pop(name) for name in CAPS if name in sampling),
        ]
        if "max_tokens" in settings:
            caps.append(settings["max_tokens"])
        for name, value in sampling.items():
            if name not in SETTINGS:
                known = ", ".join(SETTINGS)
                raise ConfigError(f"Pydantic AI has no setting for {name!r}; options: {known}")
            is_text = name == "stop" and isinstance(value, str)
            settings[SETTINGS[name]] = [value] if is_text else value
        settings |= {"max_tokens": min(caps), "max_retries": 0}
        settings.setdefault("timeout", timeout_seconds)
        return cast("ModelSettings", settings)


def _found(model: Model | str) -> Model:
    if isinstance(model, Model):
        return model
    if not isinstance(model, str):
        raise ConfigError(
            f"a Pydantic AI model must be an object or a name, not {type(model).__name__}"
        )
    try:
        return infer_model(model)
    except (UserError, ValueError, ImportError) as error:
        raise ConfigError(f"Pydantic AI has no model {model!r}: {error}") from error


def _info(model: Model) -> ModelInfo:
    """Return what the engine's table says of a model; the window may come from Pydantic AI."""
    known = models.about(model.system, model.model_name)
    window = model.profile.get("context_window")
    if known.window_tokens is not None or not isinstance(window, int):
        return known
    return ModelInfo(window, known.price, known.profile)
