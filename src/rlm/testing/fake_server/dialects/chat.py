"""Answers in the form of OpenAI's chat completions."""

import json
from typing import Any

from rlm.messages import Usage
from rlm.testing.fake_server.dialects.event import DONE, Event
from rlm.testing.fake_server.reply import FakeReply, in_pieces

__all__ = ["ChatWriter", "openai_error"]

CREATED = 1_700_000_000
"""The time of every answer, so that the same script always gives the same bytes."""

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def openai_error(status: int, message: str) -> dict[str, Any]:
    """Return the body of a refusal, the same for chat completions and responses."""
    kind = ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


class ChatWriter:
    """Reasoning is in `reasoning_content`, as with most servers of this dialect."""

    def plain(self, reply: FakeReply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        message["refusal"] = reply.refusal or None
        if not (reply.text or reply.refusal or reply.tool_calls):
            message["content"] = ""
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id or reply.identity("call_", index),
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for index, call in enumerate(reply.tool_calls)
            ]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _finish_reason(reply),
        }
        body = _about(reply, "chat.completion")
        body["choices"] = [] if reply.empty else [choice]
        return body if reply.usage is None else {**body, "usage": _usage(reply.usage)}

    def events(self, reply: FakeReply) -> list[Event]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": piece} for piece in in_pieces(reply.reasoning)]
        deltas += [{"content": piece} for piece in in_pieces(reply.text)]
        deltas += [{"refusal": piece} for piece in in_pieces(reply.refusal)]
        deltas += [{"tool_calls": [part]} for part in _call_parts(reply)]
        about = _about(reply, "chat.completion.chunk")
        chunks = [] if reply.empty else [_chunk(about, delta) for delta in deltas]
        if not reply.empty:
            chunks.append(_chunk(about, {}, _finish_reason(reply)))
        if reply.usage is not None:
            chunks.append({**about, "choices": [], "usage": _usage(reply.usage)})
        return [*map(Event, chunks), DONE]

    def error(self, status: int, message: str) -> dict[str, Any]:
        return openai_error(status, message)

    def failed(self, reply: FakeReply, status: int, message: str) -> dict[str, Any]:
        """Return an error with the status as its code, as gateways write it."""
        error = openai_error(status, message)["error"]
        return {"error": {**error, "code": status}}

    def error_event(self, status: int, message: str) -> Event:
        error = openai_error(status, message)["error"]
        return Event({"error": {**error, "code": status}})


def _about(reply: FakeReply, kind: str) -> dict[str, Any]:
    return {
        "id": reply.identity("chatcmpl-", length=29),
        "object": kind,
        "created": CREATED,
        "model": reply.model,
    }


def _chunk(about: dict[str, Any], delta: dict[str, Any], reason: str | None = None) -> Any:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return {**about, "choices": [choice]}


def _call_parts(reply: FakeReply) -> list[dict[str, Any]]:
    """Return the chunks of a call: its name first, then its arguments in halves."""
    parts: list[dict[str, Any]] = []
    for index, call in enumerate(reply.tool_calls):
        arguments = json.dumps(call.arguments)
        half = len(arguments) // 2
        parts.append(
            {
                "index": index,
                "id": call.id or reply.identity("call_", index),
                "type": "function",
                "function": {"name": call.name, "arguments": ""},
            }
        )
        parts += [
            {"index": index, "function": {"arguments": piece}}
            for piece in (arguments[:half], arguments[half:])
        ]
    return parts


def _finish_reason(reply: FakeReply) -> str:
    """Return the finish reason: `stop` for a refusal with text, else `content_filter`."""
    if reply.finish_reason == "refusal":
        return "stop" if reply.refusal else "content_filter"
    return reply.finish_reason


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
