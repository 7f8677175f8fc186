"""Chat completions, not streamed: routes, meaning, forms of replies."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm.clients.scripted import ScriptedClient
from rlm.messages import Reply, ToolCall, Usage
from tests.server.serving import LARGE, MODEL, WITH_REPL, server, submits


async def test_a_small_request_goes_straight_to_the_model(tmp_path: Path) -> None:
    model = ScriptedClient(["hello there"])
    async with server(tmp_path, model) as client:
        messages = [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "yes?"},
            {"role": "user", "content": "how are you?"},
        ]
        answer = await client.chat(messages, temperature=0.5, max_tokens=50)
    assert answer.status == 200, answer.text
    body = answer.json
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["content"] == "hello there"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["rlm"]["route"] == "direct"
    [request] = model.requests
    assert [(m.role, m.content) for m in request.messages] == [
        (m["role"], m["content"]) for m in messages
    ]
    assert request.max_output_tokens == 50
    assert request.sampling["temperature"] == 0.5


async def test_a_large_message_becomes_the_context_of_a_run(tmp_path: Path) -> None:
    code = "```repl\nprint(len(context)); FINAL(len(context))\n```"
    model = ScriptedClient([code])
    text = f"{LARGE}\n\nHow long is this?"
    async with server(tmp_path, model) as client:
        answer = await client.chat(text)
    assert answer.status == 200, answer.text
    assert answer.json["choices"][0]["message"]["content"] == str(len(text))
    assert answer.json["rlm"]["route"] == "rlm"
    assert answer.json["rlm"]["steps"] == 1
    prompt = str(model.requests[0].messages[-1].content)
    assert "How long is this?" in prompt
    assert "Line 400" not in prompt
