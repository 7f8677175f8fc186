"""Export runs as training data: one row per reply, or OpenAI conversations."""

from collections.abc import Iterator
from typing import Any

import msgspec

from rlm.events import ModelAsked, ModelReplied
from rlm.messages import Message, ToolCall
from rlm.prompts import NATIVE_TOOLS
from rlm.records.trajectories.exports._replies import (
    Conversation,
    Once,
    Taught,
    finished,
    plain_calls,
    replies,
)
from rlm.records.trajectories.exports._secrets import without_secrets
from rlm.records.trajectories.exports._texts import json_of, judgments_of, roots_of, text_of
from rlm.records.trajectories.index import RunOutline
from rlm.records.trajectories.read import Trajectory

__all__ = ["openai_chat", "sft", "trl"]


def sft(trajectory: Trajectory, runs: list[RunOutline]) -> Iterator[str]:
    """Yield rows of `prompt` and `completion`, the lists of messages that trainers expect.

    Child runs and plain calls have their own rows, with the judgment of their root.
    """
    judged = judgments_of(trajectory, runs)
    lines = _Lines()
    for taught, about in _taught(trajectory, runs):
        row = {
            "parent_id": taught.run.parent_id,
            "step": taught.step,
            "purpose": taught.purpose,
            "model": taught.model,
            "prompt": [_message(each) for each in taught.prompt],
            "completion": [_message(taught.reply)],
            "finish_reason": taught.finish_reason,
            "run_stop_reason": taught.run.stop_reason or taught.run.status,
            "run_answer_source": taught.run.answer_source,
        }
        if taught.reasoning:
            row["reasoning"] = taught.reasoning
        yield from lines.of({**judged.get(taught.run.run_id, {}), **row, **about})


def trl(trajectory: Trajectory, runs: list[RunOutline]) -> Iterator[str]:
    """Yield rows that `datasets` reads as one table: the same columns, and texts as contents."""
    lines = _Lines()
    for taught, about in _taught(trajectory, runs):
        completion = _text_message(taught.reply)
        row: dict[str, Any] = {
            "prompt": [_text_message(each) for each in taught.prompt],
            "completion": [completion],
            **about,
        }
        calls = [call.name for each in (*taught.prompt, taught.reply) for call in each.tool_calls]
        if calls:
            row["tools"] = [_tool(name) for name in dict.fromkeys(calls)]
        yield from lines.of(row)


class _Lines:
    """Rows as JSON, without secrets, and each conversation once."""

    def __init__(self) -> None:
        self._hide = without_secrets()
        self._once = Once()

    def of(self, row: dict[str, Any]) -> Iterator[str]:
        try:
            shown = self._hide(row)
        except RecursionError:  # Only a forged log is nested that deeply.
            return
        messages = [shown.get(name) for name in ("prompt", "completion", "messages")]
        if self._once.is_new(*messages):
            yield json_of(shown) + "\n"


def _taught(
    trajectory: Trajectory, runs: list[RunOutline]
) -> Iterator[tuple[Taught, dict[str, Any]]]:
    """Yield every reply, and what all rows say about it."""
    roots = roots_of(runs)
    for run in runs:
        root_id = roots[run.run_id]
        for taught in replies(run, trajectory.run_events(run.run_id)):
            yield (
                taught,
                {
                    "kind": taught.kind,
                    "run_id": run.run_id,
                    "root_id": root_id,
                    "depth": run.depth,
                    "score": trajectory.score_of(root_id),
                },
            )


def _text_message(message: Message) -> dict[str, Any]:
    return {**_message(message), "content": text_of(message.content)}


def _message(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        row["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        row["tool_call_id"] = message.tool_call_id
    return row


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def openai_chat(trajectory: Trajectory, runs: list[RunOutline]) -> Iterator[str]:
    """Yield one conversation per run and per plain call; a compacted run has several."""
    lines = _Lines()
    for run in runs:
        conversation = Conversation()
        for event in trajectory.run_events(run.run_id):
            if isinstance(event, ModelAsked):
                yield from _chat(lines, conversation.ask(event))
            elif isinstance(event, ModelReplied):
                conversation.reply(event)
        yield from _chat(lines, finished(conversation.messages))
        for call in plain_calls(run, trajectory.run_events(run.run_id)):
            yield from _chat(lines, [*call.prompt, call.reply])


def _chat(lines: _Lines, messages: list[Message]) -> Iterator[str]:
    told = list(_Telling(messages))
    if any(each["role"] == "assistant" and each.get("weight") != 0 for each in told):
        row: dict[str, Any] = {"messages": told}
        names = {c["function"]["name"]: None for m in told for c in m.get("tool_calls", ())}
        if names:
            row["tools"] = [_tool(name) for name in names]
        yield from lines.of(row)


class _Telling:
    """Yields messages such that each tool call has its result, and each result its call."""

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
        """Return the calls answered after a message; None after the last one: all may stay."""
        if at == len(self._messages) - 1:
            return None
        answered: set[str | None] = set()
        for message in self._messages[at + 1 :]:
            if message.role != "tool":
                break
            answered.add(message.tool_call_id)
        return answered

    def _assistant(self, message: Message, answered: set[str | None] | None) -> dict[str, Any]:
        row: dict[str, Any] = {"role": "assistant"}
        self._names = {}
        calls = []
        for call in message.tool_calls:
            if (answered is None or call.id in answered) and call.id not in self._names:
                self._calls += 1
                self._names[call.id] = f"call_{self._calls}"
                calls.append(_openai_call(call, self._names[call.id]))
        text = text_of(message.content)
        if text.strip() or not calls:
            row["content"] = text
        if calls:
            row["tool_calls"] = calls
        elif not text.strip():
            row["weight"] = 0  # An empty reply happened, but there is nothing to learn from it.
        return row


def _openai_call(call: ToolCall, name: str) -> dict[str, Any]:
    arguments = json_of(call.arguments)
    return {
        "id": name,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _tool(name: str) -> dict[str, Any]:
    """Return the tool as the model saw it; only the name if it is unknown."""
    for tool in NATIVE_TOOLS:
        if tool.name == name:
            return {"type": "function", "function": msgspec.to_builtins(tool)}
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def _content(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return text unchanged; from a list of parts, texts and pictures in OpenAI's form."""
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    data, url = part.get("data"), part.get("url")
    if part.get("type") == "image" and isinstance(data, str):
        url = f"data:{part.get('media_type', 'image/png')};base64,{data}"
    if part.get("type") == "image" and isinstance(url, str):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": text_of([part])}
