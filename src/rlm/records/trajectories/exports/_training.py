"""Export runs as training data: one row per step, or OpenAI conversations."""

from collections.abc import Iterator
from typing import Any

import msgspec

from rlm.events import ModelAsked, ModelReplied
from rlm.messages import Message, ToolCall
from rlm.prompts import NATIVE_TOOLS
from rlm.records.trajectories.exports._texts import json_of, judgments_of, text_of
from rlm.records.trajectories.index import RunOutline
from rlm.records.trajectories.read import Trajectory

__all__ = ["Conversation", "openai_chat", "sft"]


class Conversation:
    """The messages of one run; a log has only what each request added."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._sent = 0

    def ask(self, event: ModelAsked) -> list[Message]:
        """Add a request. Return the previous messages if this one does not continue them.

        That happens after a compaction, and for requests that stand alone.
        """
        base = max(0, event.message_count - len(event.new_messages))
        before = self.messages
        self.messages = [*before[:base], *event.new_messages]
        goes_on = before[: self._sent] == self.messages[: self._sent]
        self._sent = len(self.messages)
        return [] if goes_on else finished(before)

    def reply(self, event: ModelReplied) -> None:
        """Add a reply. If the model was then asked anew, the next request leaves it out."""
        if event.error is None:
            self.messages.append(
                Message("assistant", event.text, tool_calls=tuple(event.tool_calls))
            )


def finished(messages: list[Message]) -> list[Message]:
    """Return the conversation up to its last reply; empty if there was none."""
    last = max((at for at, each in enumerate(messages) if each.role == "assistant"), default=-1)
    return messages[: last + 1]


def sft(trajectory: Trajectory, runs: list[RunOutline]) -> Iterator[str]:
    """Yield rows of `prompt` and `completion`, lists of messages as trainers take them.

    Child runs have rows of their own, with the judgment of their root. Empty and failed replies
    have none.
    """
    judged = judgments_of(trajectory, runs)
    for run in runs:
        conversation = Conversation()
        for event in trajectory.run_events(run.run_id):
            if isinstance(event, ModelAsked):
                conversation.ask(event)
            elif isinstance(event, ModelReplied):
                if event.error is None and (event.text.strip() or event.tool_calls):
                    row = _row(run, event, conversation.messages)
                    yield json_of({**row, **judged.get(run.run_id, {})}) + "\n"
                conversation.reply(event)


def _row(run: RunOutline, event: ModelReplied, prompt: list[Message]) -> dict[str, Any]:
    reply = Message("assistant", event.text, tool_calls=tuple(event.tool_calls))
    row = {
        "run_id": run.run_id,
        "parent_id": run.parent_id,
        "depth": run.depth,
        "step": event.step,
        "purpose": event.purpose,
        "model": event.model,
        "prompt": [_message(each) for each in prompt],
        "completion": [_message(reply)],
        "finish_reason": event.finish_reason,
        "run_stop_reason": run.stop_reason or run.status,
        "run_answer_source": run.answer_source,
    }
    return {**row, "reasoning": event.reasoning} if event.reasoning else row


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
    """Yield one conversation per run, child runs included; a compacted run has several."""
    for run in runs:
        conversation = Conversation()
        for event in trajectory.run_events(run.run_id):
            if isinstance(event, ModelAsked):
                yield from _line(conversation.ask(event))
            elif isinstance(event, ModelReplied):
                conversation.reply(event)
        yield from _line(finished(conversation.messages))


def _line(messages: list[Message]) -> Iterator[str]:
    lines = list(_Telling(messages))
    if any(each["role"] == "assistant" and each.get("weight") != 0 for each in lines):
        row: dict[str, Any] = {"messages": lines}
        names = {c["function"]["name"]: None for m in lines for c in m.get("tool_calls", ())}
        if names:
            row["tools"] = [_tool(name) for name in names]
        yield json_of(row) + "\n"


class _Telling:
    """Yield messages so that each tool call has its result, and each result its call."""

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
        """Return the calls answered after a message; None after the last: all may stay."""
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
    """Return the tool as the model saw it; of an unknown one, only the name."""
    for tool in NATIVE_TOOLS:
        if tool.name == name:
            return {"type": "function", "function": msgspec.to_builtins(tool)}
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def _content(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return text as it is; of parts, texts and pictures in OpenAI's form."""
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    data, url = part.get("data"), part.get("url")
    if part.get("type") == "image" and isinstance(data, str):
        url = f"data:{part.get('media_type', 'image/png')};base64,{data}"
    if part.get("type") == "image" and isinstance(url, str):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": text_of([part])}
