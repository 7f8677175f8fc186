"""Events in the terms of OpenTelemetry's conventions for generative AI, without telemetry.

The names are those of `opentelemetry-semantic-conventions`, which are still in development. Our own
names begin with `rlm.`. Only the functions `*_content` return texts that people or models wrote
(prompts, replies, code, output), and they cut them.
"""

import functools
from collections.abc import Sequence
from typing import Any

import msgspec

from rlm._util.text import sendable
from rlm.events import (
    CallEnded,
    CallStarted,
    CellEnded,
    ContextHashed,
    ModelAsked,
    ModelReplied,
    RunEnded,
    RunStarted,
    ToolCalled,
)
from rlm.messages import Message, ToolCall, Usage

Attributes = dict[str, Any]

AGENT = "rlm"
CONTENT_CHARS = 20_000
NAME_CHARS = 200
OPERATION = "gen_ai.operation.name"
ERROR_TYPE = "error.type"
CHAT, INVOKE_AGENT, EXECUTE_TOOL = "chat", "invoke_agent", "execute_tool"

PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "bedrock-openai": "aws.bedrock",
    "foundry": "azure.ai.inference",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""Providers whose names the conventions spell differently. All others keep their names."""

CUSTOM = "custom"
"""The provider of the caller's own client object or function."""

FINISH_REASONS = {"tool_calls": "tool_call", "refusal": "content_filter"}


@functools.lru_cache(maxsize=256)
def provider_and_model(name: str) -> tuple[str, str]:
    """Return the provider as the conventions spell it, and the model's own name."""
    provider, slash, model = clean(name).removeprefix("litellm/").partition("/")
    if provider.startswith("gguf:"):
        return "gguf", f"{provider}/{model}".rstrip("/").rpartition("/")[2].removeprefix("gguf:")
    return (PROVIDERS.get(provider, provider), model) if slash else (CUSTOM, provider)


def clean(text: str, limit: int = NAME_CHARS) -> str:
    """Return text that every exporter can send, cut to a limit."""
    return sendable(text if len(text) <= limit else text[: limit - 1] + "…")


def content(text: str) -> str:
    return clean(text, CONTENT_CHARS)


# -- requests -------------------------------------------------------------------------------------


def request(model: str) -> Attributes:
    provider, own_name = provider_and_model(model)
    return {
        OPERATION: CHAT,
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": own_name,
    }


def request_attributes(event: ModelAsked) -> Attributes:
    return {
        **request(event.model),
        "gen_ai.request.max_tokens": event.max_output_tokens,
        "rlm.request.purpose": clean(event.purpose),
        "rlm.request.message_count": event.message_count,
        "rlm.step": event.step,
    }


def asked_content(event: ModelAsked) -> Attributes:
    """Return only what earlier requests of the run did not contain; those have their own spans."""
    return {"gen_ai.input.messages": _json([_message(each) for each in event.new_messages])}


def called(event: CallStarted) -> Attributes:
    return {**request(event.model), "rlm.call.id": clean(event.call_id), "rlm.step": event.step}


def called_content(event: CallStarted) -> Attributes:
    return {"gen_ai.input.messages": _json([_turn("user", [_text(event.prompt)])])}


def answered(event: ModelReplied | CallEnded) -> Attributes:
    """Return the attributes of a reply. A stored reply costs nothing, so it has no usage."""
    found: Attributes = {"rlm.retries": event.retries, "rlm.stored": event.stored}
    if event.usage is not None and not event.stored:
        found.update(usage(event.usage))
    if event.error is not None:
        found["gen_ai.response.finish_reasons"] = ["error"]
    elif isinstance(event, ModelReplied):
        found["gen_ai.response.finish_reasons"] = [_finish_reason(event)]
    return found


def answered_content(event: ModelReplied | CallEnded) -> Attributes:
    if event.error is not None:
        return {}
    if isinstance(event, CallEnded):
        parts, why = [_text(event.reply)], "stop"
    else:
        parts = [_text(event.reasoning, "reasoning")] if event.reasoning else []
        parts += [_text(event.text)] if event.text else []
        parts += _tool_calls(event.tool_calls)
        why = _finish_reason(event)
    return {"gen_ai.output.messages": _json([{**_turn("assistant", parts), "finish_reason": why}])}


def usage(used: Usage) -> Attributes:
    found: Attributes = {
        "gen_ai.usage.input_tokens": used.input_tokens,
        "gen_ai.usage.output_tokens": used.output_tokens,
    }
    some = {
        "gen_ai.usage.cache_read.input_tokens": used.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": used.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": used.reasoning_tokens,
    }
    found.update({name: number for name, number in some.items() if number})
    if used.cost_usd is not None:
        found["rlm.cost_usd"] = used.cost_usd
    return found


# -- runs, cells, tools ---------------------------------------------------------------------------


def run(event: RunStarted) -> Attributes:
    return {
        **request(event.model),
        OPERATION: INVOKE_AGENT,
        "gen_ai.agent.name": AGENT,
        "rlm.run.id": clean(event.run_id),
        "rlm.run.depth": event.depth,
        "rlm.run.strategy": clean(event.strategy),
        "rlm.sub_model": clean(event.sub_model),
        "rlm.environment": clean(event.environment),
        "rlm.context.kind": clean(event.context_kind),
        "rlm.context.bytes": event.context_bytes,
        **(context_hash(event) if event.context_sha256 else {}),
    }


def context_hash(event: RunStarted | ContextHashed) -> Attributes:
    return {"rlm.context.sha256": clean(event.context_sha256)}


def run_content(event: RunStarted) -> Attributes:
    return {"gen_ai.input.messages": _json([_turn("user", [_text(event.query)])])}


def ended(event: RunEnded) -> Attributes:
    found = {
        **usage(event.usage),
        "rlm.run.stop_reason": clean(event.stop_reason),
        "rlm.run.answer_source": clean(event.answer_source),
        "rlm.run.steps": event.steps,
        "rlm.run.requests": event.usage.requests,
    }
    return found if event.limit is None else {**found, "rlm.run.limit": clean(event.limit)}


def ended_content(event: RunEnded) -> Attributes:
    if event.answer is None:
        return {}
    turn = {**_turn("assistant", [_text(event.answer)]), "finish_reason": "stop"}
    return {"gen_ai.output.messages": _json([turn])}


def cell_ended(event: CellEnded) -> Attributes:
    return {
        "rlm.cell.calls": event.calls,
        "rlm.cell.interrupted": event.interrupted,
        "rlm.cell.submitted": event.submitted,
    }


def tool(name: str, call_id: str) -> Attributes:
    return {
        OPERATION: EXECUTE_TOOL,
        "gen_ai.tool.name": clean(name),
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": clean(call_id),
    }


def tool_content(event: ToolCalled) -> Attributes:
    return {
        "gen_ai.tool.call.arguments": content(_json(event.arguments)),
        "gen_ai.tool.call.result": content(event.result),
    }


# -- messages as the conventions write them -------------------------------------------------------


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        answer = {"type": "tool_call_response", "response": _flat(message.content)}
        return _turn("tool", [{**answer, "id": clean(message.tool_call_id or "")}])
    parts = [_text(message.content)] if isinstance(message.content, str) else []
    if not isinstance(message.content, str):
        parts = [_part(part) for part in message.content]
    return _turn(message.role, [*parts, *_tool_calls(message.tool_calls)])


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a message: texts in full, pictures only mentioned."""
    text = part.get("text")
    return _text(text) if isinstance(text, str) else {"type": clean(str(part.get("type", "other")))}


def _flat(parts: str | list[dict[str, Any]]) -> str:
    if isinstance(parts, str):
        return content(parts)
    return content("\n".join(str(part.get("text", "")) for part in parts))


def _tool_calls(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    return [
        {
            "type": "tool_call",
            "id": clean(call.id),
            "name": clean(call.name),
            "arguments": content(_json(call.arguments)),
        }
        for call in calls
    ]


def _turn(role: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": role, "parts": parts}


def _text(text: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "content": content(text)}


def _finish_reason(event: ModelReplied) -> str:
    return FINISH_REASONS.get(event.finish_reason, clean(event.finish_reason))


def _json(value: Any) -> str:
    """Return JSON; lone surrogates in arguments of tools become visible marks."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, TypeError, RecursionError):
        return sendable(repr(value))
