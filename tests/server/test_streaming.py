"""Streams: OpenAI's chunks exactly, progress, errors, and clients that disconnect."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp

from rlm.errors import ModelError
from rlm.messages import Reply, Request, ToolCall
from rlm.testing.scripted import ScriptedClient
from tests.server.serving import WITH_REPL, Client, Held, server, submits


def _body(content: str = "hello", **more: Any) -> dict[str, Any]:
    return {"model": WITH_REPL, "messages": [{"role": "user", "content": content}], **more}


def _text(chunks: list[Any], name: str = "content") -> str:
    return "".join(c["choices"][0]["delta"].get(name, "") for c in chunks if c.get("choices"))


async def test_tokens_of_a_direct_request_are_streamed_as_they_arrive(tmp_path: Path) -> None:
    async with server(tmp_path, ScriptedClient(["one two three"])) as client:
        chunks = await client.chunks(_body())
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert _text(chunks) == "one two three"
    assert chunks[-1]["choices"] == [
        {"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": None}
    ]
    assert chunks[-1]["rlm"]["route"] == "direct"
    assert not any("usage" in chunk for chunk in chunks)


class Gated(ScriptedClient):
    """Sends its second piece only when the test says so."""

    def __init__(self) -> None:
        super().__init__(["first second"])
        self.gate = asyncio.Event()

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        async for part in super().stream(request, timeout_seconds=timeout_seconds):
            if part == "second":
                await self.gate.wait()
            yield part


async def test_each_piece_is_sent_before_the_next_one_exists(tmp_path: Path) -> None:
    model = Gated()
    async with (
        server(tmp_path, model) as client,
        client.stream("/v1/chat/completions", _body(stream=True)) as events,
    ):
        pieces = []
        async for event in events:
            if "data" not in event or event["data"] == "[DONE]":
                continue
            piece = json.loads(event["data"])["choices"][0]["delta"].get("content")
            pieces.append(piece)
            if piece == "first ":
                model.gate.set()
    assert [piece for piece in pieces if piece] == ["first ", "second"]


async def test_usage_is_a_separate_chunk_on_request(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        chunks = await client.chunks(_body(stream_options={"include_usage": True}))
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] > 0
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


async def test_a_run_streams_its_progress_as_reasoning(tmp_path: Path) -> None:
    cells = "```repl\nparts = llm_query_batched(['a', 'b'])\nprint(parts)\n```"
    model = ScriptedClient([cells, "x", "y", submits("the answer")])
    async with server(tmp_path, model) as client:
        chunks = await client.chunks(_body("what?", rlm={"context": "some text"}))
    assert _text(chunks) == "the answer"
    lines = _text(chunks, "reasoning_content").splitlines()
    assert any("running parts = llm_query_batched" in line for line in lines), lines
    assert any("2 calls" in line for line in lines), lines
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["rlm"]["steps"] == 2


async def test_stop_sequences_are_found_across_pieces(tmp_path: Path) -> None:
    async with server(tmp_path, ScriptedClient(["one two END three four"])) as client:
        chunks = await client.chunks(_body(stop="two END"))
    assert _text(chunks) == "one "


async def test_tool_calls_are_streamed_with_their_indexes(tmp_path: Path) -> None:
    reply = Reply(text="", tool_calls=(ToolCall("c1", "f", {"a": 1}),), finish_reason="tool_calls")
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with server(tmp_path, ScriptedClient([reply])) as client:
        chunks = await client.chunks(_body(tools=tools))
    calls = [c["choices"][0]["delta"].get("tool_calls") for c in chunks]
    assert [each for each in calls if each] == [
        [
            {
                "id": "c1",
                "function": {"name": "f", "arguments": '{"a":1}'},
                "type": "function",
                "index": 0,
            }
        ]
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_an_error_in_a_stream_is_an_error_event(tmp_path: Path) -> None:
    model = ScriptedClient([ModelError("secret-host is down", status=401)])
    async with server(tmp_path, model) as client:
        [first, last] = await client.chunks(_body())
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert last["error"]["code"] == "model_failed"
    assert "secret-host" not in json.dumps(last)


async def test_a_quiet_stream_is_kept_alive_by_comments(tmp_path: Path) -> None:
    model, comments, rest = Held(["late"]), 0, ""
    async with (
        server(tmp_path, model, heartbeat_seconds=0.05) as client,
        client.stream("/v1/chat/completions", _body(stream=True)) as events,
    ):
        async for event in events:
            comments += "" in event
            rest += event.get("data", "")
            if comments == 3:
                model.gate.set()
    assert comments >= 3
    assert "late" in rest


# -- clients that leave ---------------------------------------------------------------------------


async def _until_nothing_runs(client: Client) -> None:
    service = client.service
    async with asyncio.timeout(60):
        while service.admission.running or service.jobs.running:
            await asyncio.sleep(0.01)


async def _leave_early(client: Client, model: ScriptedClient, **more: Any) -> None:
    request = asyncio.create_task(client.post("/v1/chat/completions", _body(**more)))
    async with asyncio.timeout(60):
        while not model.in_flight:
            await asyncio.sleep(0.01)
    request.cancel()
    with contextlib.suppress(asyncio.CancelledError, aiohttp.ClientError):
        await request
    await _until_nothing_runs(client)


async def test_a_client_that_leaves_ends_its_request(tmp_path: Path) -> None:
    for more in ({}, {"stream": True}, {"rlm": {"route": "rlm"}}):
        model = ScriptedClient(rules=[("", "never")], delay_seconds=60)
        async with server(tmp_path, model) as client:
            await _leave_early(client, model, **more)
            assert model.in_flight == 0, "the model is not asked any more"


async def test_a_client_that_disconnects_while_queued_makes_room(tmp_path: Path) -> None:
    model = ScriptedClient(rules=[("", "never")], delay_seconds=60)
    async with server(tmp_path, model, max_concurrent_runs=1, max_queued=1) as client:
        first = asyncio.create_task(client.chat("first"))
        async with asyncio.timeout(60):
            while not model.in_flight:
                await asyncio.sleep(0.01)
        second = asyncio.create_task(client.chat("second"))
        async with asyncio.timeout(60):
            while not client.service.admission.queued:
                await asyncio.sleep(0.01)
        assert (await client.chat("third")).status == 429
        second.cancel()
        async with asyncio.timeout(60):
            while client.service.admission.queued:
                await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        await _until_nothing_runs(client)
        assert len(model.requests) == 1
