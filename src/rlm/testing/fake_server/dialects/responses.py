"""Answers in the form of OpenAI's Responses interface."""

import itertools
import json
from typing import Any

from rlm.messages import Usage
from rlm.testing.fake_server.dialects.chat import CREATED, openai_error
from rlm.testing.fake_server.dialects.event import SIGNATURE, Event
from rlm.testing.fake_server.reply import FakeReply, in_pieces

__all__ = ["ResponsesWriter"]

INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}


class ResponsesWriter:
    """Output is a list of items; a stream opens, fills and closes them, and numbers its events."""

    def plain(self, reply: FakeReply) -> dict[str, Any]:
        reason = None if reply.refusal else INCOMPLETE.get(reply.finish_reason)
        body = _response(reply, "incomplete" if reason else "completed")
        body["output"] = [] if reply.empty else _items(reply)
        body["incomplete_details"] = {"reason": reason} if reason else None
        body["usage"] = None if reply.usage is None else _usage(reply.usage)
        return body

    def events(self, reply: FakeReply) -> list[Event]:
        begun = _response(reply, "in_progress")
        whole = self.plain(reply)
        facts: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
        ]
        for index, item in enumerate(whole["output"]):
            facts += _item_events(index, item)
        facts.append({"type": f"response.{whole['status']}", "response": whole})
        numbers = itertools.count()
        return [Event({**each, "sequence_number": next(numbers)}, each["type"]) for each in facts]

    def error(self, status: int, message: str) -> dict[str, Any]:
        return openai_error(status, message)

    def failed(self, reply: FakeReply, status: int, message: str) -> dict[str, Any]:
        body = _response(reply, "failed")
        return {**body, "error": {"code": _code(status), "message": message}}

    def error_event(self, status: int, message: str) -> Event:
        facts = {"code": _code(status), "message": message, "param": None, "sequence_number": 99}
        return Event({"type": "error", **facts}, "error")


def _code(status: int) -> str:
    return "rate_limit_exceeded" if status == 429 else "server_error"


def _response(reply: FakeReply, status: str) -> dict[str, Any]:
    return {
        "id": reply.identity("resp_", length=48),
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": reply.model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None,
    }


def _items(reply: FakeReply) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.reasoning:
        items.append(
            {
                "type": "reasoning",
                "id": reply.identity("rs_", length=48),
                "summary": [{"type": "summary_text", "text": reply.reasoning}],
                "encrypted_content": SIGNATURE,
            }
        )
    content: list[dict[str, Any]] = []
    if reply.text or not (reply.refusal or reply.tool_calls):
        content.append({"type": "output_text", "text": reply.text, "annotations": []})
    if reply.refusal:
        content.append({"type": "refusal", "refusal": reply.refusal})
    if content:
        identity = reply.identity("msg_", length=48)
        items.append(
            {
                "type": "message",
                "id": identity,
                "status": "completed",
                "role": "assistant",
                "content": content,
            }
        )
    items += [
        {
            "type": "function_call",
            "id": reply.identity("fc_", index, length=48),
            "call_id": call.id or reply.identity("call_", index),
            "name": call.name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }
        for index, call in enumerate(reply.tool_calls)
    ]
    return items


def _item_events(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    at = {"output_index": index, "item_id": item["id"]}
    opened = {**item, **({"status": "in_progress"} if "status" in item else {})}
    if item["type"] == "message":
        opened["content"] = []
        inside = [
            each
            for number, part in enumerate(item["content"])
            for each in _part_events({**at, "content_index": number}, part)
        ]
    elif item["type"] == "reasoning":
        opened["summary"] = []
        inside = _summary_events({**at, "summary_index": 0}, item["summary"][0])
    else:
        opened["arguments"] = ""
        inside = _argument_events(at, item)
    return [
        {"type": "response.output_item.added", "output_index": index, "item": opened},
        *inside,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _part_events(at: dict[str, Any], part: dict[str, Any]) -> list[dict[str, Any]]:
    kind, name = ("refusal", "refusal") if part["type"] == "refusal" else ("output_text", "text")
    plain: dict[str, Any] = {"logprobs": []} if name == "text" else {}
    deltas = [
        {"type": f"response.{kind}.delta", **at, "delta": piece, **plain}
        for piece in in_pieces(part[name])
    ]
    return [
        {"type": "response.content_part.added", **at, "part": {**part, name: ""}},
        *deltas,
        {"type": f"response.{kind}.done", **at, name: part[name], **plain},
        {"type": "response.content_part.done", **at, "part": part},
    ]


def _summary_events(at: dict[str, Any], part: dict[str, Any]) -> list[dict[str, Any]]:
    name = "response.reasoning_summary_text"
    return [
        {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}},
        *({"type": f"{name}.delta", **at, "delta": each} for each in in_pieces(part["text"])),
        {"type": f"{name}.done", **at, "text": part["text"]},
        {"type": "response.reasoning_summary_part.done", **at, "part": part},
    ]


def _argument_events(at: dict[str, Any], item: dict[str, Any]) -> list[dict[str, Any]]:
    name, arguments = "response.function_call_arguments", item["arguments"]
    half = len(arguments) // 2
    return [
        {"type": f"{name}.delta", **at, "delta": arguments[:half]},
        {"type": f"{name}.delta", **at, "delta": arguments[half:]},
        {"type": f"{name}.done", **at, "name": item["name"], "arguments": arguments},
    ]


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
