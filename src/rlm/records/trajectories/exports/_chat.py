"""Conversations in the form that OpenAI's fine-tuning takes: `{"messages": [...]}` a line."""

from collections.abc import Iterator
from typing import Any

import msgspec

from rlm.events import ModelAsked, ModelReplied
from rlm.messages import Message, ToolCall
from rlm.prompts import NATIVE_TOOLS
from rlm.records.trajectories.exports._conversation import Conversation, finished
from rlm.records.trajectories.exports._texts import json_of, text_of
from rlm.records.trajectories.index import RunOutline
from rlm.records.trajectories.read import Trajectory

__all__ = ["openai_chat"]


def openai_chat(trajectory: Trajectory, runs: list[RunOutline]) -> Iterator[str]:
    """A conversation a run, child runs included; a run that was compacted has one a stretch."""
    for run in runs:
        conversation = Conversation()
        for event in trajectory.run_events(run.run_id):
            if isinstance(event, ModelAsked):
                yield from _line(conversation.ask(event))
            elif isinstance(event, ModelReplied):
                conversation.reply(event)
        yield from _line(finished(conversation.messages))


def _line(messages: list[Message]) -> Iterator[str]:
    told = list(_Telling(messages))
    if any(each["role"] == "assistant" and each.get("weight") != 0 for each in told):
        row: dict[str, Any] = {"messages": told}
        names = {c["function"]["name"]: None for m in told for c in m.get("tool_calls", ())}
        if names:
            row["tools"] = [_tool(name) for name in names]
        yield json_of(row) + "\n"


class _Telling:
    """Messages one by one. Each tool call must be answered, and each answer have its call."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._names: dict[str, str] = {}
        self._calls = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for at, message in enumerate(self._messages):
            if message.role == "assistant":
                yield self._assistant(message, self._answered_after(at))
            elif message.role == "tool" and message.tool_call_id in self._names:
                name = self._names.pop(message.tool_call_id)
                yield {"role": "tool", "tool_call_id": name, "content": text_of(message.content)}
            else:
                role = "system" if message.role == "system" else "user"
                yield {"role": role, "content": _content(message.content)}

    def _answered_after(self, at: int) -> set[str | None] | None:
        """The calls that are answered behind a message; None behind the last: all may stay."""
        if at == len(self._messages) - 1:
            return None
        answered: set[str | None] = set()
        for message in self._messages[at + 1 :]:
            if message.role != "tool":
                break
            answered.add(message.tool_call_id)
        return answered

    def _assistant(self, message: Message, answered: set[str | None] | None) -> dict[str, Any]:
        told: dict[str, Any] = {"role": "assistant"}
        self._names = {}
        calls = []
        for call in message.tool_calls:
            if (answered is None or call.id in answered) and call.id not in self._names:
                self._calls += 1
                self._names[call.id] = f"call_{self._calls}"
                calls.append(_call(call, self._names[call.id]))
        text = text_of(message.content)
        if text.strip() or not calls:
            told["content"] = text
        if calls:
            told["tool_calls"] = calls
        elif not text.strip():
            told["weight"] = 0  # An empty reply is part of what happened, but nothing to learn.
        return told


def _call(call: ToolCall, name: str) -> dict[str, Any]:
    arguments = json_of(call.arguments)
    return {
        "id": name,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _tool(name: str) -> dict[str, Any]:
    """The tool as the model was told of it; of one that nobody knows, only the name."""
    for tool in NATIVE_TOOLS:
        if tool.name == name:
            return {"type": "function", "function": msgspec.to_builtins(tool)}
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def _content(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Text as it is; of parts, texts and pictures in OpenAI's spelling."""
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    data, url = part.get("data"), part.get("url")
    if part.get("type") == "image" and isinstance(data, str):
        url = f"data:{part.get('media_type', 'image/png')};base64,{data}"
    if part.get("type") == "image" and isinstance(url, str):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": text_of([part])}
