"""Rows for supervised fine-tuning: a row a reply, with everything the model had before it."""

from collections.abc import Iterator
from typing import Any

from rlm.events import ModelAsked, ModelReplied
from rlm.messages import Message, ToolCall
from rlm.records.trajectories.exports._conversation import Conversation
from rlm.records.trajectories.exports._texts import json_of
from rlm.records.trajectories.index import RunOutline
from rlm.records.trajectories.read import Trajectory

__all__ = ["sft"]


def sft(trajectory: Trajectory, runs: list[RunOutline]) -> Iterator[str]:
    """`prompt` and `completion` are lists of messages, as trainers take them.

    Child runs have rows of their own. Empty and failed replies have none.
    """
    for run in runs:
        conversation = Conversation()
        for event in trajectory.run_events(run.run_id):
            if isinstance(event, ModelAsked):
                conversation.ask(event)
            elif isinstance(event, ModelReplied):
                if event.error is None and (event.text.strip() or event.tool_calls):
                    yield json_of(_row(run, event, conversation.messages)) + "\n"
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
    told: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        told["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        told["tool_call_id"] = message.tool_call_id
    return told


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
