"""Any language model of dspy as a client of the engine."""

import contextvars
from collections.abc import Callable
from typing import Any, Literal

import dspy
from dspy import lm15

from rlm import models
from rlm.clients.callable import CallableClient
from rlm.errors import ConfigError, ModelError
from rlm.messages import Reply, ToolCall, Usage

__all__ = ["DspyClient"]

SETTINGS = frozenset(
    {
        *("frequency_penalty", "presence_penalty", "reasoning_effort", "seed", "stop"),
        *("temperature", "top_k", "top_p"),
    }
)
"""Options of a model of dspy that go into each request; the others say how to reach it."""

CAPS = ("max_tokens", "max_completion_tokens", "max_output_tokens")

FINISHES: dict[str, Literal["stop", "length", "tool_calls", "refusal", "other"]] = {
    "stop": "stop",
    "length": "length",
    "tool_call": "tool_calls",
    "content_filter": "refusal",
}


class DspyClient(CallableClient):
    """Answer with a `dspy.LM`, or any other model that dspy accepts.

    Requests run in threads with the settings of the code that made the client, so dspy counts
    their usage, records their history and calls its callbacks as for one of its own modules. dspy
    retries by itself, so the engine does not. `failure` is what the last failed request raised.
    """

    max_attempts = 1

    def __init__(self, lm: Any) -> None:
        if not callable(lm) or not isinstance(getattr(lm, "model", None), str):
            raise ConfigError(f"a dspy model must be a dspy.LM, not {type(lm).__name__}")
        self._lm = lm
        self._context = contextvars.copy_context()
        self.model_name = lm.model
        self.failure: dspy.LMError | None = None
        provider, _, name = lm.model.partition("/")
        super().__init__(self._answer, info=models.about(provider, name))

    def __repr__(self) -> str:
        return f"DspyClient({self.model_name!r})"

    def _answer(
        self,
        messages: list[dict[str, Any]],
        *,
        max_output_tokens: int,
        tools: list[dict[str, Any]],
        **sampling: Any,
    ) -> Reply:
        request = self._request(messages, max_output_tokens, tools, sampling)
        named = {"rollout_id": self._settings().get("rollout_id")}
        call: Callable[[], Any] = lambda: self._lm(  # noqa: E731 - run in another context
            request, **{name: value for name, value in named.items() if value is not None}
        )
        try:
            response = self._context.copy().run(call)
        except dspy.LMError as error:
            self.failure = error
            raise
        return _reply(response)

    def _settings(self) -> dict[str, Any]:
        return dict(getattr(self._lm, "kwargs", None) or {})

    def _request(
        self,
        messages: list[dict[str, Any]],
        max_output_tokens: int,
        tools: list[dict[str, Any]],
        sampling: dict[str, Any],
    ) -> lm15.Request:
        """Return dspy's form of a request; a setting of the model applies where a run sets none."""
        settings = self._settings() | {n: v for n, v in sampling.items() if v is not None}
        if unknown := sorted(sampling.keys() - SETTINGS - set(CAPS)):
            known = ", ".join(sorted(SETTINGS))
            raise ConfigError(f"dspy has no setting for {unknown[0]!r}; options: {known}")
        caps = [settings[name] for name in CAPS if settings.get(name)]
        body: dict[str, Any] = {
            "model": self._lm.model,
            "messages": messages,
            "max_tokens": min([max_output_tokens, *caps]),
            **{name: settings[name] for name in SETTINGS if settings.get(name) is not None},
        }
        if tools:
            body["tools"] = tools
        try:
            return lm15.request_from_openai_chat(body)
        except (TypeError, ValueError, lm15.LM15Error) as error:
            raise ModelError(f"{self.model_name}: dspy can't send this request: {error}") from error


def _reply(response: Any) -> Reply:
    if not isinstance(response, lm15.Response):
        raise TypeError(f"the model returned {type(response).__name__}, not a response")
    calls = response.message.parts_of(lm15.ToolCallPart)
    thoughts = response.message.parts_of(lm15.ThinkingPart)
    return Reply(
        text=response.text or "",
        tool_calls=tuple(ToolCall(call.id, call.name, dict(call.input)) for call in calls),
        reasoning="\n\n".join(part.text for part in thoughts if part.text),
        usage=_usage(response.usage),
        finish_reason="tool_calls" if calls else FINISHES.get(response.finish_reason, "other"),
        model=response.model,
    )


def _usage(used: lm15.Usage) -> Usage | None:
    """Return the counted tokens, or None if the provider counted none."""
    if used.input_tokens is None and used.output_tokens is None:
        return None
    return Usage(
        input_tokens=used.input_tokens or 0,
        output_tokens=used.output_tokens or 0,
        cached_tokens=used.cache_read_tokens or 0,
        reasoning_tokens=used.reasoning_tokens or 0,
        cache_write_tokens=used.cache_write_tokens or 0,
        requests=1,
    )
