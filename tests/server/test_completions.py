"""Chat completions, not streamed: routes, meaning, forms of replies."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm.citations import Citation
from rlm.messages import Reply, ToolCall, Usage
from rlm.testing.scripted import ScriptedClient
from tests.server.serving import LARGE, MODEL, server, submits


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


async def test_citations_are_reported_with_the_facts_of_a_run(tmp_path: Path) -> None:
    model = ScriptedClient(["```repl\ncite('Line 400')\ncite('nowhere')\nFINAL('x')\n```"])
    async with server(tmp_path, model) as client:
        answer = await client.chat(f"{LARGE}\n\nWhich line?")
    facts = answer.json["rlm"]
    [citation] = facts["citations"]
    assert (citation["text"], facts["unsupported_quotes"]) == ("Line 400", 1)
    assert LARGE[citation["start"] : citation["end"]] == "Line 400"
    assert tuple(citation) == Citation.__struct_fields__
    assert (citation["places"], citation["cut_chars"]) == (1, 0)


async def test_a_model_without_a_repl_is_always_asked_directly(tmp_path: Path) -> None:
    model = ScriptedClient(["short"])
    async with server(tmp_path, model) as client:
        answer = await client.chat(LARGE, model=MODEL)
        refused = await client.chat("hi", model=MODEL, rlm={"context": "text"})
    assert answer.json["rlm"]["route"] == "direct"
    assert model.requests[0].messages[0].content == LARGE
    assert refused.status == 400
    assert "rlm/test/small" in refused.json["error"]["message"]


async def test_the_rlm_field_sets_context_and_limits(tmp_path: Path) -> None:
    model = ScriptedClient(["```repl\nFINAL(context['a'] + ' ' + str(len(context)))\n```"])
    async with server(tmp_path, model) as client:
        answer = await client.chat(
            "What is a?",
            rlm={"context": {"a": "one", "b": "two"}, "limits": {"max_steps": 2}},
        )
    assert answer.json["choices"][0]["message"]["content"] == "one 2"
    assert "What is a?" in str(model.requests[0].messages[-1].content)


async def test_instructions_and_a_short_conversation_follow_the_query_in_the_prompt(
    tmp_path: Path,
) -> None:
    model = ScriptedClient([submits("done")])
    messages = [
        {"role": "system", "content": "Answer in French."},
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": [{"type": "text", "text": f"{LARGE}\n\nWho am I?"}]},
    ]
    async with server(tmp_path, model) as client:
        answer = await client.chat(messages)
    assert answer.status == 200, answer.text
    prompt = str(model.requests[0].messages[-1].content)
    for told in ("Who am I?", "Answer in French.", "My name is Ada.", "Noted."):
        assert told in prompt


async def test_usage_counts_the_calls_that_cells_make(tmp_path: Path) -> None:
    model = ScriptedClient(
        rules=[("summarise", "short")],
        script=["```repl\nFINAL(llm_query('summarise this'))\n```"],
        usage=lambda *_: Usage(100, 10, cached_tokens=4, reasoning_tokens=3, requests=1),
    )
    async with server(tmp_path, model) as client:
        answer = await client.chat("what?", rlm={"context": "text"})
    assert answer.json["choices"][0]["message"]["content"] == "short"
    assert answer.json["usage"] == {
        "prompt_tokens": 200,
        "completion_tokens": 20,
        "total_tokens": 220,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 6},
    }
    assert (answer.json["rlm"]["steps"], answer.json["rlm"]["calls"]) == (1, 1)


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WANTED = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}


async def test_a_run_answers_in_the_shape_of_the_schema(tmp_path: Path) -> None:
    model = ScriptedClient([submits("no JSON"), submits({"city": "Paris"})])
    async with server(tmp_path, model) as client:
        answer = await client.chat("where?", rlm={"context": "x"}, response_format=WANTED)
    assert json.loads(answer.json["choices"][0]["message"]["content"]) == {"city": "Paris"}
    assert answer.json["rlm"]["steps"] == 2


async def test_an_answer_that_never_fits_the_schema_is_an_error(tmp_path: Path) -> None:
    model = ScriptedClient(rules=[("", submits("no JSON"))])
    async with server(tmp_path, model) as client:
        answer = await client.chat("where?", rlm={"context": "x"}, response_format=WANTED)
    assert answer.status == 502
    assert answer.json["error"]["code"] == "no_valid_answer"


async def test_on_the_direct_route_the_schema_is_sent_to_the_model(tmp_path: Path) -> None:
    model = ScriptedClient(['{"city": "Paris"}'])
    async with server(tmp_path, model) as client:
        answer = await client.chat("where?", response_format=WANTED)
    assert answer.status == 200
    assert model.requests[0].sampling["response_format"]["json_schema"]["schema"] == SCHEMA


async def test_json_object_requires_an_object(tmp_path: Path) -> None:
    model = ScriptedClient([submits([1]), submits({"a": 1})])
    async with server(tmp_path, model) as client:
        answer = await client.chat(
            "what?", rlm={"context": "x"}, response_format={"type": "json_object"}
        )
    assert answer.json["choices"][0]["message"]["content"] == '{"a":1}'


@pytest.mark.parametrize("route", ["rlm", "direct"])
async def test_answers_end_at_a_stop_sequence(tmp_path: Path, route: str) -> None:
    text = "one two STOP three"
    model = ScriptedClient([submits(text) if route == "rlm" else text])
    async with server(tmp_path, model) as client:
        answer = await client.chat("count", stop=["nine", "STOP"], rlm={"route": route})
    choice = answer.json["choices"][0]
    assert choice["message"]["content"] == "one two "
    assert choice["finish_reason"] == "stop"


async def test_an_answer_longer_than_max_tokens_is_cut(tmp_path: Path) -> None:
    model = ScriptedClient([submits("x" * 100)])
    async with server(tmp_path, model) as client:
        answer = await client.chat("what?", rlm={"route": "rlm"}, max_tokens=5)
    choice = answer.json["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("x" * 20, "length")


async def test_a_run_that_reaches_a_limit_says_so(tmp_path: Path) -> None:
    model = ScriptedClient(rules=[("", "```repl\nprint(1)\n```")])
    async with server(tmp_path, model) as client:
        answer = await client.chat("what?", rlm={"context": "x", "limits": {"max_steps": 1}})
    assert answer.status == 200
    assert answer.json["choices"][0]["finish_reason"] == "length"
    assert answer.json["rlm"]["stop_reason"] == "steps"


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


async def test_tools_are_passed_through_on_the_direct_route(tmp_path: Path) -> None:
    called = Reply(
        text="",
        tool_calls=(ToolCall("c1", "weather", {"city": "Paris"}),),
        finish_reason="tool_calls",
    )
    model = ScriptedClient([called, "It rains."])
    async with server(tmp_path, model) as client:
        first = await client.chat("weather?", tools=TOOLS)
        message = first.json["choices"][0]["message"]
        answered = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
        asked = {"role": "user", "content": "weather?"}
        second = await client.chat([asked, message, answered], tools=TOOLS)
    assert message["content"] is None
    assert message["tool_calls"][0]["function"] == {
        "name": "weather",
        "arguments": '{"city":"Paris"}',
    }
    assert first.json["choices"][0]["finish_reason"] == "tool_calls"
    assert second.json["choices"][0]["message"]["content"] == "It rains."
    assert model.requests[0].tools[0].name == "weather"
    assert model.requests[1].messages[1].tool_calls[0].arguments == {"city": "Paris"}


async def test_tools_on_the_rlm_route_are_refused_with_a_remedy(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        answer = await client.chat(LARGE, tools=TOOLS)
    assert answer.status == 400
    assert answer.json["error"]["param"] == "tools"
    assert "route='direct'" in answer.json["error"]["message"]


async def test_pictures_are_sent_to_the_model(tmp_path: Path) -> None:
    model = ScriptedClient(["a cat"])
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    async with server(tmp_path, model) as client:
        content = [{"type": "text", "text": "what is it?"}, picture]
        answer = await client.chat([{"role": "user", "content": content}])
        refused = await client.chat([{"role": "user", "content": content}], rlm={"context": "x"})
    assert answer.json["choices"][0]["message"]["content"] == "a cat"
    assert model.requests[0].messages[0].content == [
        {"type": "text", "text": "what is it?"},
        {"type": "image", "url": "data:image/png;base64,AAAA"},
    ]
    assert refused.status == 400


async def test_repeating_a_named_run_sends_no_request(tmp_path: Path) -> None:
    model = ScriptedClient([submits("once")])
    async with server(tmp_path, model) as client:
        rlm: dict[str, Any] = {"context": "text", "run_id": "my-run"}
        first = await client.chat("what?", rlm=rlm)
        again = await client.chat("what?", rlm=rlm)
        seen = await client.get("/v1/runs/my-run")
    assert first.json["choices"] == again.json["choices"]
    assert len(model.requests) == 1
    assert (seen.json["status"], seen.json["answer"]) == ("completed", "once")


LONE = "a\ud800b"


@pytest.mark.parametrize("stream", [True, False])
async def test_lone_surrogates_in_text_do_not_prevent_an_answer(
    tmp_path: Path, stream: bool
) -> None:
    called = Reply(text=LONE, tool_calls=(ToolCall("c", "f", {"x": LONE}),))
    model = ScriptedClient([called, submits(LONE), submits({"x": LONE})])
    wanted = {"type": "json_object"}
    async with server(tmp_path, model) as client:
        asked: list[dict[str, Any]] = [
            {"tools": TOOLS},
            {"rlm": {"context": "x"}},
            {"rlm": {"context": "x"}, "response_format": wanted},
        ]
        for more in asked:
            answer = await client.chat("what?", stream=stream, **more)
            assert answer.status == 200, answer.text
            assert "error" not in answer.text
            assert answer.text.endswith("[DONE]\n\n" if stream else "}")
