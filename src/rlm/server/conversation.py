"""Messages of clients, as the engine's own and as plain text."""

import json
from typing import Any

from rlm._util.text import sendable
from rlm.messages import Message, ToolCall, ToolSpec
from rlm.server.errors import bad_request
from rlm.server.requests import (
    AssistantCall,
    ChatMessage,
    FilePart,
    ImagePart,
    RefusalPart,
    TextPart,
    ToolField,
)
from rlm.server.splitting import Spoken

__all__ = ["as_messages", "as_spoken", "as_tools", "files_named", "has_images", "with_tools"]


def as_spoken(messages: list[ChatMessage]) -> list[Spoken]:
    """Their texts; what a tool was called with is text too."""
    return [Spoken(message.role, _text(message)) for message in messages]


def as_messages(messages: list[ChatMessage]) -> tuple[Message, ...]:
    """Messages that a model can be sent as they are."""
    return tuple(
        Message(
            role="system" if each.role == "developer" else each.role,
            content=_content(each),
            tool_calls=tuple(
                _call(call, f"messages[{number}].tool_calls") for call in each.tool_calls or ()
            ),
            tool_call_id=each.tool_call_id,
        )
        for number, each in enumerate(messages)
    )


def as_tools(tools: list[ToolField]) -> tuple[ToolSpec, ...]:
    nothing: dict[str, Any] = {"type": "object", "properties": {}}
    return tuple(
        ToolSpec(
            tool.function.name, tool.function.description or "", tool.function.parameters or nothing
        )
        for tool in tools
    )


def has_images(messages: list[ChatMessage]) -> bool:
    return any(isinstance(part, ImagePart) for message in messages for part in _parts(message))


def with_tools(messages: list[ChatMessage]) -> bool:
    """Whether tools were called, or have answered."""
    return any(message.tool_calls or message.role == "tool" for message in messages)


def files_named(messages: list[ChatMessage]) -> list[str]:
    """The ids of files that messages hold."""
    return [
        part.file.file_id
        for message in messages
        for part in _parts(message)
        if isinstance(part, FilePart)
    ]


def _parts(message: ChatMessage) -> list[Any]:
    return message.content if isinstance(message.content, list) else []


def _text(message: ChatMessage) -> str:
    if isinstance(message.content, list):
        text = "\n".join(_part_text(part) for part in message.content)
    else:
        text = message.content or ""
    called = [
        f"{call.function.name}({call.function.arguments})" for call in message.tool_calls or ()
    ]
    return sendable("\n".join([*([text] if text else []), *called]))


def _part_text(part: Any) -> str:
    if isinstance(part, TextPart):
        return part.text
    return part.refusal if isinstance(part, RefusalPart) else ""


def _content(message: ChatMessage) -> str | list[dict[str, Any]]:
    """A text where there is nothing but text: some servers take no list."""
    if not isinstance(message.content, list):
        return message.content or ""
    if not any(isinstance(part, ImagePart) for part in message.content):
        return "\n".join(_part_text(part) for part in message.content)
    return [_wire(part) for part in message.content if not isinstance(part, FilePart)]


def _wire(part: Any) -> dict[str, Any]:
    if isinstance(part, ImagePart):
        return {"type": "image", "url": part.image_url.url}
    return {"type": "text", "text": _part_text(part)}


def _call(call: AssistantCall, where: str) -> ToolCall:
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise bad_request(f"the arguments of {call.function.name} must be a JSON object", where)
    return ToolCall(call.id, call.function.name, arguments)
