"""OpenAI's responses: the same runs in another form, streamed and not."""

import json
from pathlib import Path
from typing import Any

from rlm.messages import Reply, ToolCall
from rlm.testing.scripted import ScriptedClient
from tests.server.serving import LARGE, WITH_REPL, Client, server, submits


async def _ask(client: Client, asked: Any = "hello", **more: Any) -> Any:
    answer = await client.post("/v1/responses", {"model": WITH_REPL, "input": asked, **more})
    assert answer.status == 200, answer.text
    return answer.json


async def _events(client: Client, asked: Any, **more: Any) -> list[Any]:
    body = {"model": WITH_REPL, "input": asked, **more}
    events = await client.chunks(body, "/v1/responses")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


async def test_a_response_contains_a_message(tmp_path: Path) -> None:
    model = ScriptedClient(["hello there"])
    async with server(tmp_path, model) as client:
        body = await _ask(client, "hi", instructions="be brief", metadata={"a": "b"})
    assert (body["object"], body["status"], body["error"]) == ("response", "completed", None)
    [item] = body["output"]
    assert (item["type"], item["role"]) == ("message", "assistant")
    assert item["content"] == [
        {"type": "output_text", "text": "hello there", "annotations": [], "logprobs": []}
    ]
    assert body["metadata"] == {"a": "b"}
    assert body["usage"]["total_tokens"] > 0
    messages = [(m.role, m.content) for m in model.requests[0].messages]
    assert messages == [("system", "be brief"), ("user", "hi")]


async def test_input_items_become_a_conversation(tmp_path: Path) -> None:
    called = Reply(text="", tool_calls=(ToolCall("c1", "f", {}),), finish_reason="tool_calls")
    model = ScriptedClient([called, "it is done"])
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    async with server(tmp_path, model) as client:
        asked: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "do it"}]}]
        first = await _ask(client, asked, tools=tools)
        [call] = first["output"]
        assert (call["type"], call["call_id"], call["name"]) == ("function_call", "c1", "f")
        asked += [call, {"type": "function_call_output", "call_id": "c1", "output": "done"}]
        second = await _ask(client, asked, tools=tools)
    assert second["output"][0]["content"][0]["text"] == "it is done"
    roles = [message.role for message in model.requests[1].messages]
    assert roles == ["user", "assistant", "tool"]


async def test_large_input_becomes_the_context(tmp_path: Path) -> None:
    model = ScriptedClient(["```repl\nFINAL(len(context))\n```"])
    async with server(tmp_path, model) as client:
        body = await _ask(client, LARGE)
    assert body["output"][0]["content"][0]["text"] == str(len(LARGE))
    assert body["rlm"]["route"] == "rlm"


async def test_the_text_format_is_respected(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    text = {"format": {"type": "json_schema", "name": "n", "schema": schema}}
    async with server(tmp_path, ScriptedClient([submits({"n": 5})])) as client:
        body = await _ask(client, "count", text=text, rlm={"context": "x"})
    assert json.loads(body["output"][0]["content"][0]["text"]) == {"n": 5}


async def test_a_response_that_reaches_a_limit_is_incomplete(tmp_path: Path) -> None:
    model = ScriptedClient(rules=[("", "```repl\nprint(1)\n```")])
    async with server(tmp_path, model) as client:
        body = await _ask(client, "what?", rlm={"context": "x", "limits": {"max_steps": 1}})
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_events_follow_openais_order(tmp_path: Path) -> None:
    model = ScriptedClient(["```repl\nprint(llm_query('a'))\n```", "x", submits("the answer")])
    async with server(tmp_path, model) as client:
        events = await _events(client, "what?", rlm={"context": "text"})
    kinds = [event["type"] for event in events]
    assert kinds[:3] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    said = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    assert said == "the answer"
    whole = events[-1]["response"]
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message"]
    assert whole["output"][1]["content"][0]["text"] == "the answer"
    assert "running print(llm_query" in whole["output"][0]["summary"][0]["text"]


async def test_tool_calls_are_streamed_as_events(tmp_path: Path) -> None:
    called = Reply(text="", tool_calls=(ToolCall("c1", "f", {"a": 1}),), finish_reason="tool_calls")
    tools = [{"type": "function", "name": "f"}]
    async with server(tmp_path, ScriptedClient([called])) as client:
        events = await _events(client, "do it", tools=tools)
    kinds = [event["type"] for event in events]
    assert "response.function_call_arguments.done" in kinds
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["function_call"]


async def test_a_failure_is_streamed_as_an_event(tmp_path: Path) -> None:
    async with server(tmp_path, ScriptedClient([RuntimeError("secret")])) as client:
        events = await _events(client, "what?")
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-1]["response"]["error"]["code"] == "model_failed"
    assert "secret" not in json.dumps(events)


async def test_options_that_need_stored_responses_are_refused(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        for more in ({"previous_response_id": "resp_1"}, {"background": True}):
            answer = await client.post("/v1/responses", {"model": WITH_REPL, "input": "x", **more})
            assert answer.status == 400
            assert answer.json["error"]["param"] == next(iter(more))
