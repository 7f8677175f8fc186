"""Answers in the form of Anthropic's messages."""

import json
from typing import Any

from rlm.messages import Usage
from rlm.testing.fake_server.dialects.event import SIGNATURE, Event
from rlm.testing.fake_server.reply import FakeReply, in_pieces

__all__ = ["AnthropicWriter"]

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "refusal": "refusal",
}
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicWriter:
    """Content is a list of blocks; a stream opens, fills and closes them one by one."""

    def plain(self, reply: FakeReply) -> dict[str, Any]:
        body = {
            **_message(reply),
            "content": [] if reply.empty else _blocks(reply),
            "stop_reason": STOP_REASONS[reply.finish_reason],
        }
        return body if reply.usage is None else {**body, "usage": _usage(reply.usage)}

    def events(self, reply: FakeReply) -> list[Event]:
        message = _message(reply)
        if reply.usage is not None:
            message["usage"] = {**_usage(reply.usage), "output_tokens": 1}
        events = [_event("message_start", message=message), _event("ping")]
        for index, block in enumerate([] if reply.empty else _blocks(reply)):
            events += _block_events(index, block)
        delta = {"stop_reason": STOP_REASONS[reply.finish_reason], "stop_sequence": None}
        used = {} if reply.usage is None else {"usage": _usage(reply.usage)}
        return [*events, _event("message_delta", delta=delta, **used), _event("message_stop")]

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}}

    def failed(self, reply: FakeReply, status: int, message: str) -> dict[str, Any]:
        return self.error(status, message)

    def error_event(self, status: int, message: str) -> Event:
        return Event(self.error(status, message), "error")


def _event(kind: str, **facts: Any) -> Event:
    return Event({"type": kind, **facts}, kind)


def _message(reply: FakeReply) -> dict[str, Any]:
    return {
        "id": reply.identity("msg_01", length=22),
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _blocks(reply: FakeReply) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": SIGNATURE})
    if text := reply.text + reply.refusal:
        blocks.append({"type": "text", "text": text})
    blocks += [
        {
            "type": "tool_use",
            "id": call.id or reply.identity("toolu_01", index, length=22),
            "name": call.name,
            "input": call.arguments,
        }
        for index, call in enumerate(reply.tool_calls)
    ]
    return blocks


def _block_events(index: int, block: dict[str, Any]) -> list[Event]:
    kind = block["type"]
    if kind == "thinking":
        opened = {**block, "thinking": "", "signature": ""}
        pieces = [("thinking_delta", "thinking", each) for each in in_pieces(block["thinking"])]
        pieces.append(("signature_delta", "signature", block["signature"]))
    elif kind == "text":
        opened = {**block, "text": ""}
        pieces = [("text_delta", "text", each) for each in in_pieces(block["text"])]
    else:
        opened = {**block, "input": {}}
        arguments = json.dumps(block["input"])
        half = len(arguments) // 2
        halves = ("", arguments[:half], arguments[half:])
        pieces = [("input_json_delta", "partial_json", each) for each in halves]
    return [
        _event("content_block_start", index=index, content_block=opened),
        *(
            _event("content_block_delta", index=index, delta={"type": delta, name: piece})
            for delta, name, piece in pieces
        ),
        _event("content_block_stop", index=index),
    ]


def _usage(usage: Usage) -> dict[str, Any]:
    """Return usage; here `input_tokens` excludes cached tokens."""
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }
