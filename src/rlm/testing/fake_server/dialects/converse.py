"""Answers in the form of Amazon Bedrock's Converse, with its binary streams."""

import json
import struct
import zlib
from typing import Any

from rlm.messages import Usage
from rlm.testing.fake_server.dialects.event import SIGNATURE, Event
from rlm.testing.fake_server.reply import FakeReply, in_pieces

__all__ = ["ConverseWriter", "frame"]

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "refusal": "content_filtered",
}
EXCEPTIONS = {
    400: "validationException",
    403: "accessDeniedException",
    404: "resourceNotFoundException",
    429: "throttlingException",
    503: "serviceUnavailableException",
}


class ConverseWriter:
    """A message of blocks without types; in a stream, the name of an event is in its frame."""

    def plain(self, reply: FakeReply) -> dict[str, Any]:
        content = [] if reply.empty else _blocks(reply)
        body = {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": STOP_REASONS[reply.finish_reason],
            "metrics": {"latencyMs": 1},
        }
        return body if reply.usage is None else {**body, "usage": _usage(reply.usage)}

    def events(self, reply: FakeReply) -> list[Event]:
        events = [Event({"role": "assistant"}, "messageStart")]
        for index, block in enumerate([] if reply.empty else _blocks(reply)):
            events += _block_events(index, block)
        events.append(Event({"stopReason": STOP_REASONS[reply.finish_reason]}, "messageStop"))
        if reply.usage is not None:
            counted = {"usage": _usage(reply.usage), "metrics": {"latencyMs": 1}}
            events.append(Event(counted, "metadata"))
        return events

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"message": message}

    def failed(self, reply: FakeReply, status: int, message: str) -> dict[str, Any]:
        return {EXCEPTIONS.get(status, "internalServerException"): {"message": message}}

    def error_event(self, status: int, message: str) -> Event:
        return Event({"message": message}, EXCEPTIONS.get(status, "internalServerException"))


def _blocks(reply: FakeReply) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if reply.reasoning:
        thought = {"text": reply.reasoning, "signature": SIGNATURE}
        blocks.append({"reasoningContent": {"reasoningText": thought}})
    if text := reply.text + reply.refusal:
        blocks.append({"text": text})
    for index, call in enumerate(reply.tool_calls):
        identity = call.id or reply.identity("tooluse_", index, length=22)
        used = {"toolUseId": identity, "name": call.name, "input": call.arguments}
        blocks.append({"toolUse": used})
    return blocks


def _block_events(index: int, block: dict[str, Any]) -> list[Event]:
    started: list[Event] = []
    deltas: list[dict[str, Any]]
    if "reasoningContent" in block:
        thought = block["reasoningContent"]["reasoningText"]
        pieces = [{"text": piece} for piece in in_pieces(thought["text"])]
        pieces.append({"signature": thought["signature"]})
        deltas = [{"reasoningContent": piece} for piece in pieces]
    elif "text" in block:
        deltas = [{"text": piece} for piece in in_pieces(block["text"])]
    else:
        call = dict(block["toolUse"])
        arguments = json.dumps(call.pop("input"))
        half = len(arguments) // 2
        started = [_of_block(index, "contentBlockStart", start={"toolUse": call})]
        deltas = [{"toolUse": {"input": part}} for part in (arguments[:half], arguments[half:])]
    filled = [_of_block(index, "contentBlockDelta", delta=delta) for delta in deltas]
    return [*started, *filled, _of_block(index, "contentBlockStop")]


def _of_block(index: int, name: str, **facts: Any) -> Event:
    return Event({"contentBlockIndex": index, **facts}, name)


def _usage(usage: Usage) -> dict[str, Any]:
    """Return usage; `inputTokens` excludes cached tokens, and the total includes them."""
    return {
        "inputTokens": usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
        "cacheReadInputTokens": usage.cached_tokens,
        "cacheWriteInputTokens": usage.cache_write_tokens,
    }


def frame(name: str, payload: bytes) -> bytes:
    """Return one event as a frame of AWS's event streams."""
    kind = "exception" if name.endswith("Exception") else "event"
    pairs = {
        f":{kind}-type": name,
        ":content-type": "application/json",
        ":message-type": kind,
    }
    headers = b"".join(_header(*pair) for pair in pairs.items())
    sizes = struct.pack(">II", len(headers) + len(payload) + 16, len(headers))
    start = sizes + struct.pack(">I", zlib.crc32(sizes)) + headers + payload
    return start + struct.pack(">I", zlib.crc32(start))


def _header(name: str, value: str) -> bytes:
    size = struct.pack(">H", len(value))
    return bytes([len(name)]) + name.encode() + bytes([7]) + size + value.encode()
