"""The chat-completions dialect: a request becomes its body. Replies are `_chat_reply`'s."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rlm.clients._chat_reply import StreamedChat, chat_reply
from rlm.clients._dialect import ErrorReport
from rlm.clients._fields import dicts_in, status_of
from rlm.clients._json import dump
from rlm.clients._parts import image_of
from rlm.clients._quirks import UNKNOWN, Quirks, cap_name, checked_sampling, is_claude
from rlm.clients._sampling import output_cap
from rlm.messages import Message, Reply, Request, ToolSpec

__all__ = ["ChatDialect", "image_url", "smallest_cap"]

PATH = "/chat/completions"
LOCAL_CAP_NAMES = ("n_predict", "num_predict")
"""Local servers' own names of the output cap: they may not go around the one that is budgeted."""

OURS = ("model", "messages", "stream", "stream_options")
CARRIED_PARTS = ("reasoning_details", "reasoning_content", "tool_calls")
BREAKPOINT = {"cache_control": {"type": "ephemeral"}}


class ChatDialect:
    """What OpenAI began and most servers speak, with the quirks of one of them.

    `address`: where `{path}` of the operation goes, and `{model}` if the address names it.
    """

    def __init__(self, quirks: Quirks = UNKNOWN, address: str = "{path}") -> None:
        self._quirks = quirks
        self._address = address

    def path(self, request: Request, *, stream: bool) -> str:
        model = quote(request.model, safe="")
        return self._address.replace("{path}", PATH).replace("{model}", model)

    def body(self, request: Request, *, stream: bool) -> bytes:
        sampling = checked_sampling(self._quirks, request.model, request.sampling)
        cap = smallest_cap(request, sampling)
        messages = [_message(message) for message in request.messages]
        if request.grows and self._quirks.caches_claude and is_claude(request.model):
            _set_breakpoints(messages)
        content: dict[str, Any] = {
            **{name: value for name, value in sampling.items() if name not in OURS},
            "model": request.model,
            "messages": messages,
            cap_name(self._quirks, request.model): cap,
        }
        if request.tools:
            content["tools"] = [_tool(tool) for tool in request.tools]
        if stream:
            content |= {"stream": True, "stream_options": {"include_usage": True}}
        return dump(content)

    def reply(self, payload: dict[str, Any]) -> Reply:
        return chat_reply(payload, self._quirks)

    def streamed(self) -> StreamedChat:
        return StreamedChat(self._quirks)

    def error_in(self, payload: dict[str, Any]) -> ErrorReport | None:
        groq = payload.get("x_groq")
        error = payload.get("error") or (groq.get("error") if isinstance(groq, dict) else None)
        choices = dicts_in(payload.get("choices"))
        if not error or any(choice.get("finish_reason") != "error" for choice in choices):
            return None
        status = status_of(error)
        return (None, error) if status is None else (status, {"error": error})


def smallest_cap(request: Request, sampling: dict[str, Any]) -> int:
    """The output cap: the request's, or less if sampling asks for less; takes its names out."""
    local = [{"max_tokens": sampling.pop(name)} for name in LOCAL_CAP_NAMES if name in sampling]
    return output_cap(request, sampling, *local)


def image_url(part: dict[str, Any]) -> str | None:
    """The address of a neutral image part, its data included if it has some."""
    image = image_of(part)
    if image is None:
        return None
    return image.url or f"data:{image.media_type};base64,{image.data}"


def _tool(tool: ToolSpec) -> dict[str, Any]:
    described = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": described}


def _message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": _content(message.content)}
    if message.tool_calls:
        wire["content"] = wire["content"] or None
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": dump(call.arguments).decode()},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if isinstance(message.opaque, Mapping):
        wire |= {name: message.opaque[name] for name in CARRIED_PARTS if name in message.opaque}
    return wire


def _content(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    url = image_url(part)
    return part if url is None else {"type": "image_url", "image_url": {"url": url}}


def _set_breakpoints(messages: list[dict[str, Any]]) -> None:
    """Anthropic's cache ends after the instructions, and after all that can be marked.

    Not on results of tools: OpenRouter refuses marks there.
    """
    instructions = [each for each in messages if each["role"] == "system"]
    talk = [each for each in messages if each["role"] in {"user", "assistant"}]
    for group in (instructions[:1], reversed(talk)):
        for message in group:
            if marked := _marked(message["content"]):
                message["content"] = marked
                break


def _marked(content: str | list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """The same with a mark on its last text; None if it has no text."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    for place in reversed(range(len(parts))):
        if parts[place].get("type") == "text" and parts[place].get("text"):
            return [*parts[:place], {**parts[place], **BREAKPOINT}, *parts[place + 1 :]]
    return None
