"""Requests of the engine as messages of Pydantic AI, and its responses as replies."""

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from rlm.errors import ConfigError
from rlm.messages import Message, Reply, ToolCall, Usage

__all__ = ["as_messages", "as_reply"]

CARRIED = "pydantic_ai"
"""Under this name `opaque` holds a response that a provider wants back as it was."""

FINISHES: dict[str | None, Literal["stop", "length", "tool_calls", "refusal", "other"]] = {
    None: "stop",
    "stop": "stop",
    "length": "length",
    "tool_call": "tool_calls",
    "content_filter": "refusal",
    "error": "other",
}


def as_messages(messages: Sequence[Message]) -> list[ModelMessage]:
    """Return a history; messages between two replies become one request."""
    history: list[ModelMessage] = []
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    parts: list[ModelRequestPart] = []
    for message in messages:
        if message.role != "assistant":
            parts.append(_request_part(message, names))
            continue
        if parts:
            history.append(ModelRequest(parts=parts))
            parts = []
        history.append(_response(message))
    if parts:
        history.append(ModelRequest(parts=parts))
    return history


def _request_part(message: Message, names: dict[str, str]) -> ModelRequestPart:
    if message.role == "system":
        return SystemPromptPart(content=_text(message))
    if message.role == "tool":
        number = message.tool_call_id or ""
        return ToolReturnPart(
            tool_name=names.get(number, ""), content=_text(message), tool_call_id=number
        )
    if isinstance(message.content, str):
        return UserPromptPart(content=message.content)
    return UserPromptPart(content=[_user_part(part) for part in message.content])


def _user_part(part: dict[str, Any]) -> UserContent:
    if isinstance(text := part.get("text"), str):
        return text
    if part.get("type") == "image" and isinstance(url := part.get("url"), str):
        return ImageUrl(url=url)
    data, kind = part.get("data"), part.get("media_type")
    if part.get("type") != "image" or not isinstance(data, str) or not isinstance(kind, str):
        raise ConfigError(
            f"Pydantic AI accepts texts and images, not a part of type {part.get('type')!r}"
        )
    try:
        return BinaryContent(data=base64.b64decode(data, validate=True), media_type=kind)
    except binascii.Error as error:
        raise ConfigError(f"an image's data must be base64-encoded: {error}") from None


def _text(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n\n".join(str(part.get("text", "")) for part in message.content)


def _response(message: Message) -> ModelResponse:
    text = _text(message)
    if isinstance(message.opaque, dict) and CARRIED in message.opaque:
        [kept] = ModelMessagesTypeAdapter.validate_python([message.opaque[CARRIED]])
        if isinstance(kept, ModelResponse) and _joined(kept, TextPart) == text:
            return kept
    parts: list[ModelResponsePart] = [TextPart(content=text)] if text else []
    parts += [
        ToolCallPart(tool_name=call.name, args=call.arguments, tool_call_id=call.id)
        for call in message.tool_calls
    ]
    return ModelResponse(parts=parts or [TextPart(content="")])


def as_reply(response: ModelResponse) -> Reply:
    """Return a response as a reply; thoughts with a signature are kept, to be sent back."""
    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    signed = any(isinstance(part, ThinkingPart) and part.signature for part in response.parts)
    kept = ModelMessagesTypeAdapter.dump_python([response], mode="json")[0] if signed else None
    return Reply(
        text=_joined(response, TextPart),
        tool_calls=tuple(
            ToolCall(call.tool_call_id, call.tool_name, call.args_as_dict()) for call in calls
        ),
        reasoning=_joined(response, ThinkingPart),
        usage=_usage(response),
        finish_reason="tool_calls" if calls else FINISHES.get(response.finish_reason, "other"),
        model=response.model_name or "",
        opaque=None if kept is None else {CARRIED: kept},
    )


def _joined(response: ModelResponse, kind: type[TextPart] | type[ThinkingPart]) -> str:
    texts: Iterable[str] = (part.content for part in response.parts if isinstance(part, kind))
    return "".join(texts)


def _usage(response: ModelResponse) -> Usage | None:
    """Return what was reported; None if nothing was, so that the worst case is counted."""
    told = response.usage
    if not told.input_tokens or not told.output_tokens:
        return None
    return Usage(
        input_tokens=told.input_tokens,
        output_tokens=told.output_tokens,
        cached_tokens=told.cache_read_tokens,
        cache_write_tokens=told.cache_write_tokens,
        reasoning_tokens=told.output_reasoning_tokens,
        requests=1,
    )
