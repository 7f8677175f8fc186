"""The dialect of OpenAI's /responses: a request becomes its body. Replies: `_responses_reply`.

Nothing is kept on the server (`store: false`): every request holds the whole conversation, with
what the model thought, encrypted, in its place.
"""

from collections.abc import Mapping
from typing import Any

from rlm.clients._chat import image_url, smallest_cap
from rlm.clients._dialect import ErrorReport
from rlm.clients._fields import status_of
from rlm.clients._json import dump
from rlm.clients._quirks import QUIRKS, Quirks, checked_sampling, is_reasoning
from rlm.clients._responses_reply import OUTPUT, StreamedResponse, response_reply
from rlm.clients._responses_sampling import native_sampling
from rlm.messages import Message, Reply, Request, ToolSpec

__all__ = ["ResponsesDialect"]

THINKING = "reasoning.encrypted_content"
OURS = ("model", "input", "stream", "stream_options")


class ResponsesDialect:
    """OpenAI's newer dialect, which some of its models speak alone."""

    def __init__(self, quirks: Quirks = QUIRKS["openai"]) -> None:
        self._quirks = quirks

    def path(self, request: Request, *, stream: bool) -> str:
        return "/responses"

    def body(self, request: Request, *, stream: bool) -> bytes:
        sampling = checked_sampling(self._quirks, request.model, request.sampling)
        cap = smallest_cap(request, sampling)
        options = native_sampling(sampling)
        if is_reasoning(request.model):  # others refuse to be asked
            asked = options.get("include")
            others = [each for each in asked if each != THINKING] if isinstance(asked, list) else []
            options["include"] = [*others, THINKING]
        content: dict[str, Any] = {
            "store": False,
            **{name: value for name, value in options.items() if name not in OURS},
            "model": request.model,
            "input": [item for message in request.messages for item in _items(message)],
            "max_output_tokens": cap,
        }
        if request.tools:
            content["tools"] = [_tool(tool) for tool in request.tools]
        if stream:
            content["stream"] = True
        return dump(content)

    def reply(self, payload: dict[str, Any]) -> Reply:
        return response_reply(payload, self._quirks)

    def streamed(self) -> StreamedResponse:
        return StreamedResponse(self._quirks)

    def error_in(self, payload: dict[str, Any]) -> ErrorReport | None:
        """A failed response, or one of the events `response.failed` and `error`."""
        response = payload.get("response")
        whole = response if isinstance(response, dict) else payload
        error = whole.get("error") or payload.get("error")
        if payload.get("type") == "error":
            error = error or {name: payload.get(name) for name in ("code", "message")}
        elif whole.get("status") == "failed":
            error = error or "the response failed"
        elif whole.get("status") in ("completed", "incomplete"):
            return None
        if not error:
            return None
        status = status_of(error)
        return (None, error) if status is None else (status, {"error": error})


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _items(message: Message) -> list[dict[str, Any]]:
    """One message as input items; an assistant's own output, where it is known, unchanged."""
    if message.role == "tool":
        return [
            {
                "type": "function_call_output",
                "call_id": message.tool_call_id or "",
                "output": _content(message.content, "input_text"),
            }
        ]
    if message.role != "assistant":
        return [{"role": message.role, "content": _content(message.content, "input_text")}]
    output = message.opaque.get(OUTPUT) if isinstance(message.opaque, Mapping) else None
    if isinstance(output, list) and output:
        return [item for item in output if isinstance(item, dict)]
    said = [{"role": "assistant", "content": _content(message.content, "output_text")}]
    calls = [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": dump(call.arguments).decode(),
        }
        for call in message.tool_calls
    ]
    return [*said, *calls] if message.content or not calls else calls


def _content(content: str | list[dict[str, Any]], text_type: str) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [_part(part, text_type) for part in content]


def _part(part: dict[str, Any], text_type: str) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"type": text_type, "text": part.get("text", "")}
    url = image_url(part)
    if url is None:
        return part
    return {"type": "input_image", "image_url": url, "detail": "auto"}
