"""Requests of the engine as chat messages of Inspect, and its outputs as replies."""

from collections.abc import Sequence
from typing import Any, Literal

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentImage,
    ContentReasoning,
    ContentText,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.tool import ToolCall as InspectToolCall
from inspect_ai.tool import ToolInfo, ToolParams

from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, Reply, ToolCall, ToolSpec, Usage

__all__ = ["as_messages", "as_reply", "as_tools"]

CARRIED = "inspect_ai"
"""Under this name `opaque` holds a message that a provider wants back as it was."""

Finish = Literal["stop", "length", "tool_calls", "refusal", "other"]
FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "refusal",
}


def as_messages(messages: Sequence[Message]) -> list[ChatMessage]:
    return [_message(each) for each in messages]


def _message(message: Message) -> ChatMessage:
    if message.role == "system":
        return ChatMessageSystem(content=_text(message))
    if message.role == "tool":
        return ChatMessageTool(content=_text(message), tool_call_id=message.tool_call_id)
    if message.role == "assistant":
        return _assistant(message)
    if isinstance(message.content, str):
        return ChatMessageUser(content=message.content)
    return ChatMessageUser(content=[_part(part) for part in message.content])


def _part(part: dict[str, Any]) -> Content:
    if isinstance(text := part.get("text"), str):
        return ContentText(text=text)
    if part.get("type") == "image":
        if isinstance(url := part.get("url"), str):
            return ContentImage(image=url)
        if isinstance(data := part.get("data"), str):
            return ContentImage(image=f"data:{part.get('media_type')};base64,{data}")
    raise ConfigError(f"Inspect accepts texts and images, not a part of type {part.get('type')!r}")


def _text(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n\n".join(str(part.get("text", "")) for part in message.content)


def _assistant(message: Message) -> ChatMessageAssistant:
    text = _text(message)
    if isinstance(message.opaque, dict) and CARRIED in message.opaque:
        kept = ChatMessageAssistant.model_validate(message.opaque[CARRIED])
        if kept.text == text:
            return kept
    calls = [
        InspectToolCall(id=call.id, function=call.name, arguments=call.arguments)
        for call in message.tool_calls
    ]
    return ChatMessageAssistant(content=text, tool_calls=calls or None)


def as_tools(tools: Sequence[ToolSpec]) -> list[ToolInfo]:
    return [
        ToolInfo(
            name=tool.name,
            description=tool.description,
            parameters=ToolParams.model_validate(tool.parameters),
        )
        for tool in tools
    ]


def as_reply(output: ModelOutput) -> Reply:
    """Return an output as a reply; signed thoughts are kept, to be sent back."""
    if output.error or not output.choices:
        raise ModelError(f"{output.model}: {output.error or 'the output has no choice'}")
    message = output.message
    thoughts = (
        [part for part in message.content if isinstance(part, ContentReasoning)]
        if isinstance(message.content, list)
        else []
    )
    signed = any(part.signature or part.redacted for part in thoughts)
    calls = message.tool_calls or []
    return Reply(
        text=message.text,
        tool_calls=tuple(ToolCall(call.id, call.function, call.arguments) for call in calls),
        reasoning="".join(part.reasoning for part in thoughts if not part.redacted),
        usage=None if output.usage is None else _usage(output.usage),
        finish_reason=FINISHES.get(output.stop_reason, "other"),
        model=output.model,
        opaque={CARRIED: message.model_dump(mode="json")} if signed else None,
    )


def _usage(told: ModelUsage) -> Usage:
    """Inspect counts cached tokens apart; the engine counts them as input."""
    read, written = told.input_tokens_cache_read or 0, told.input_tokens_cache_write or 0
    return Usage(
        input_tokens=told.input_tokens + read + written,
        output_tokens=told.output_tokens,
        cached_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=told.reasoning_tokens or 0,
        requests=1,
    )
