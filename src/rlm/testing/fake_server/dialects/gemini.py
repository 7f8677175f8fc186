"""Answers in the form of Gemini's generateContent."""

from typing import Any

from rlm.messages import Usage
from rlm.testing.fake_server.dialects.event import SIGNATURE, Event
from rlm.testing.fake_server.reply import FakeReply, in_pieces

__all__ = ["GeminiWriter"]

FINISH_REASONS = {
    "stop": "STOP",
    "length": "MAX_TOKENS",
    "tool_calls": "STOP",
    "refusal": "SAFETY",
}
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GeminiWriter:
    """Content is a list of parts; a stream is a series of replies with a few parts each."""

    def plain(self, reply: FakeReply) -> dict[str, Any]:
        return _response(reply, _parts(reply), FINISH_REASONS[reply.finish_reason])

    def events(self, reply: FakeReply) -> list[Event]:
        if reply.empty:
            return [Event(self.plain(reply))]
        parts: list[dict[str, Any]] = []
        for part in _parts(reply):
            texts = in_pieces(part["text"]) if "text" in part else []
            if not texts:
                parts.append(part)
                continue
            rest = {name: value for name, value in part.items() if name != "thoughtSignature"}
            parts += [{**rest, "text": text} for text in texts]
            if "thoughtSignature" in part:
                parts.append({"text": "", "thoughtSignature": part["thoughtSignature"]})
        last = len(parts) - 1
        reason = FINISH_REASONS[reply.finish_reason]
        return [
            Event(_response(reply, [part], reason if number == last else None))
            for number, part in enumerate(parts)
        ]

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {
            "error": {
                "code": status,
                "message": message,
                "status": STATUSES.get(
                    status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION"
                ),
            }
        }

    def failed(self, reply: FakeReply, status: int, message: str) -> dict[str, Any]:
        return self.error(status, message)

    def error_event(self, status: int, message: str) -> Event:
        return Event(self.error(status, message))


def _response(reply: FakeReply, parts: list[dict[str, Any]], reason: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if reason is not None:
        candidate["finishReason"] = reason
    body: dict[str, Any] = {} if reply.empty else {"candidates": [candidate]}
    if reply.usage is not None:
        body["usageMetadata"] = _usage(reply.usage)
    return {**body, "modelVersion": reply.model, "responseId": reply.identity("", length=22)}


def _parts(reply: FakeReply) -> list[dict[str, Any]]:
    """Return thoughts, text and calls. What follows thoughts carries their signature."""
    parts: list[dict[str, Any]] = []
    if text := reply.text + reply.refusal:
        parts.append({"text": text})
    for call in reply.tool_calls:
        named = {"id": call.id} if call.id else {}
        parts.append({"functionCall": {**named, "name": call.name, "args": call.arguments}})
    parts = parts or [{"text": ""}]
    if not reply.reasoning:
        return parts
    signed = len(parts) - len(reply.tool_calls) if reply.tool_calls else 0
    parts[signed] = {**parts[signed], "thoughtSignature": SIGNATURE}
    return [{"text": reply.reasoning, "thought": True}, *parts]


def _usage(usage: Usage) -> dict[str, Any]:
    """Return usage; here candidates are counted without their thoughts."""
    counts = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "totalTokenCount": usage.total_tokens,
    }
    if usage.cached_tokens:
        counts["cachedContentTokenCount"] = usage.cached_tokens
    if usage.reasoning_tokens:
        counts["thoughtsTokenCount"] = usage.reasoning_tokens
    return counts
