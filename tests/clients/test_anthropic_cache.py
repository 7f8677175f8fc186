"""Marks for Anthropic's prompt cache: each step of a run reads what the step before wrote."""

import json
from itertools import pairwise
from typing import Any

from rlm.clients.anthropic import AnthropicDialect
from rlm.messages import Message
from tests.clients.test_anthropic import CALLS, LOOK, THOUGHT, back, body_of, message, said


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_marks(v) for k, v in value.items() if k != "cache_control"}
    return [without_marks(each) for each in value] if isinstance(value, list) else value


def marked(body: dict[str, Any]) -> list[str]:
    """Where the marks are: `system`, `tools`, or the number of the turn."""
    found = []
    for name in ("system", "tools"):
        found += [name for block in body.get(name, []) if "cache_control" in block]
    for number, turn in enumerate(body["messages"]):
        found += [str(number) for block in turn["content"] if "cache_control" in block]
    return found


def conversation(steps: int) -> list[tuple[Message, ...]]:
    """The messages of every request of a run with thoughts, parallel calls and empty replies."""
    messages: list[Message] = [Message("system", "Be brief."), Message("user", "go")]
    requests = [tuple(messages)]
    for step in range(steps):
        calls = [{**call, "id": f"t{step}_{n}"} for n, call in enumerate(CALLS * 12)]
        content = [[THOUGHT, said("so"), *calls], [], [said(f"step {step} ")]][step % 3]
        reply = AnthropicDialect().reply(message(*content))
        messages.append(back(reply))
        messages += [Message("tool", f"r{step}", tool_call_id=c.id) for c in reply.tool_calls]
        if not reply.tool_calls:
            messages.append(Message("user", ""))
        requests.append(tuple(messages))
    return requests


def test_each_step_starts_with_the_bytes_of_the_previous_one() -> None:
    bodies = [body_of(*messages, tools=(LOOK,), grows=True) for messages in conversation(7)]
    texts = [json.dumps(without_marks(body["messages"])) for body in bodies]
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter.removesuffix("]"))
    assert len({json.dumps([body["system"], body["tools"]]) for body in bodies}) == 1


def test_each_step_reads_the_cache_written_by_the_previous_one() -> None:
    """Marks are where the last request ended, however many blocks ago, and where this one does."""
    before: list[dict[str, Any]] = []
    for messages in conversation(7):
        body = body_of(*messages, grows=True)
        turns = body["messages"]
        ends = [str(len(turns) - 1)]
        assert marked(body) == ["system", *([str(len(turns) - 3)] if before else []), *ends]
        assert all("cache_control" in turns[int(n)]["content"][-1] for n in marked(body)[1:])
        if before:
            assert without_marks(turns[len(before) - 1]) == without_marks(before[-1])
            assert "cache_control" in turns[len(before) - 1]["content"][-1]
        before = turns


def test_without_instructions_the_tools_are_marked_for_caching() -> None:
    body = body_of(Message("user", "x"), tools=(LOOK, LOOK), grows=True)
    assert marked(body) == ["tools", "0"]
    assert "cache_control" in body["tools"][-1]


def test_single_requests_are_not_marked_and_the_callers_marks_count() -> None:
    assert marked(body_of(*conversation(4)[-1], tools=(LOOK,))) == []
    own = {**said("x"), "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    first = Message("user", [own, own, said("z")])
    system, _, *others = conversation(3)[-1]
    body = body_of(system, first, *others, grows=True)
    last = len(body["messages"]) - 1
    assert marked(body) == ["0", "0", str(last - 2), str(last)]
    top = {"cache_control": {"type": "ephemeral"}}
    body = body_of(Message("user", "y"), grows=True, sampling=top)
    assert marked(body) == []
    assert body["cache_control"] == {"type": "ephemeral"}


def test_marking_does_not_modify_the_callers_parts() -> None:
    part = said("x")
    body_of(Message("user", [part]), grows=True)
    assert part == said("x")
