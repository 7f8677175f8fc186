"""Gemini's streams: gathered like the whole response, however they come or break."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.clients.gemini import GeminiClient, GeminiDialect, StreamedContent
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, Reply, Usage
from tests.clients.hostile import ANYTHING, mutated, withstands
from tests.clients.misbehaving import Server, asked, event, replies, streams
from tests.clients.test_gemini import SECOND, SIGNED, THOUGHT, back, response


def chunk(*parts: dict[str, Any], finish: str | None = None, **usage: int) -> dict[str, Any]:
    """One chunk: the reason is in the last alone, and counts grow from one to the next."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    counts = {"promptTokenCount": 10, "totalTokenCount": 10, **usage}
    about = {"modelVersion": "gemini-3-pro", "responseId": "r1"}
    return {"candidates": [candidate], "usageMetadata": counts, **about}


END = {"text": "", "thoughtSignature": "ZW5k"}
CHUNKS = [
    chunk({"text": "h", "thought": True}, thoughtsTokenCount=2),
    chunk({"text": "m", "thought": True}, {"text": "Look"}, thoughtsTokenCount=4),
    chunk({"text": "ing."}, candidatesTokenCount=2, thoughtsTokenCount=4),
    chunk(SIGNED, SECOND, candidatesTokenCount=9, cachedContentTokenCount=6),
    chunk(END, finish="STOP", candidatesTokenCount=12, totalTokenCount=26),
]
WHOLE = response(
    THOUGHT,
    {"text": "Looking."},
    SIGNED,
    SECOND,
    END,
    usageMetadata={
        "promptTokenCount": 10,
        "candidatesTokenCount": 12,
        "thoughtsTokenCount": 4,
        "cachedContentTokenCount": 6,
        "totalTokenCount": 26,
    },
)


def gathered(chunks: list[dict[str, Any]]) -> Reply:
    streamed = StreamedContent()
    for each in chunks:
        streamed.add(each)
    return streamed.reply()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[GeminiClient]:
    made = GeminiClient(server.url.removesuffix("/v1"), "AIza-0123456789")
    yield made
    await made.close()


async def gather(client: GeminiClient) -> tuple[list[str], list[Reply]]:
    parts = [part async for part in client.stream(asked(), timeout_seconds=5)]
    texts = [part for part in parts if isinstance(part, str)]
    return texts, [part for part in parts if isinstance(part, Reply)]


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_a_stream_gives_the_same_reply_as_a_plain_request(
    server: Server, client: GeminiClient, size: int
) -> None:
    data = b"".join(event(each).replace(b"\n\n", b"\r\n\r\n") for each in CHUNKS)
    server.behave = streams([data[i : i + size] for i in range(0, len(data), size)])
    texts, (reply,) = await gather(client)
    assert texts == ["Look", "ing."]
    assert reply == GeminiDialect().reply(WHOLE)
    assert reply.usage == Usage(10, 16, cached_tokens=6, reasoning_tokens=4, requests=1)
    assert reply.opaque == {"gemini_parts": WHOLE["candidates"][0]["content"]["parts"]}
    assert server.paths == ["/v1beta/models/m-1:streamGenerateContent"]
    assert "stream" not in server.bodies[0]


def test_a_stream_requests_server_sent_events() -> None:
    assert GeminiDialect().path(asked(), stream=True).endswith(":streamGenerateContent?alt=sse")


def test_signed_parts_are_not_merged_with_others() -> None:
    signed = {"text": "b", "thoughtSignature": "c2ln"}
    reply = gathered([chunk({"text": "a"}), chunk(signed), chunk({"text": "c"}, finish="STOP")])
    assert reply.text == "abc"
    assert reply.opaque == {"gemini_parts": [{"text": "a"}, signed, {"text": "c"}]}
    plain = gathered([chunk({"text": "a"}), chunk({"text": ""}), chunk({"text": "b"})])
    assert (plain.text, plain.opaque) == ("ab", None)


async def test_an_error_in_the_middle_of_a_stream(server: Server, client: GeminiClient) -> None:
    error = {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}
    server.behave = streams([event(CHUNKS[0]), event({"error": error})])
    with pytest.raises(ModelError, match="Overloaded") as caught:
        await gather(client)
    assert (caught.value.status, caught.value.retryable) == (503, True)
    assert caught.value.ambiguous


@pytest.mark.parametrize("end", [1, 3, 4])
async def test_a_stream_without_a_finish_reason_was_cut_off(
    server: Server, client: GeminiClient, end: int
) -> None:
    server.behave = streams([event(each) for each in CHUNKS[:end]])
    with pytest.raises(ModelError, match="cut off"):
        await gather(client)


async def test_a_blocked_prompt_is_a_refusal(server: Server, client: GeminiClient) -> None:
    feedback = {"blockReason": "SAFETY", "blockReasonMessage": "No."}
    server.behave = streams([event({"promptFeedback": feedback})])
    texts, (reply,) = await gather(client)
    assert texts == []
    assert (reply.finish_reason, reply.text) == (
        "refusal",
        "Gemini refused the prompt (SAFETY: No.).",
    )


async def test_a_refusal_in_mid_answer_keeps_the_text_so_far(
    server: Server, client: GeminiClient
) -> None:
    server.behave = streams([event(chunk({"text": "So"})), event(chunk(finish="RECITATION"))])
    _, (reply,) = await gather(client)
    assert (reply.finish_reason, reply.text) == ("refusal", "So")


async def test_a_server_that_does_not_stream_is_accepted(
    server: Server, client: GeminiClient
) -> None:
    server.behave = replies(WHOLE)
    texts, (reply,) = await gather(client)
    assert texts == ["Looking."]
    assert reply == GeminiDialect().reply(WHOLE)


async def test_a_stream_without_candidates_is_malformed(
    server: Server, client: GeminiClient
) -> None:
    server.behave = streams([event({"usageMetadata": {}}), b"data: [DONE]\n\n"])
    with pytest.raises(ModelError, match="no candidates"):
        await gather(client)


@given(mutated([WHOLE]))
def test_a_broken_response_is_read_or_refused(payload: dict[str, Any]) -> None:
    withstands(GeminiDialect(), [payload])


@given(st.lists(mutated(CHUNKS) | st.dictionaries(st.text(), ANYTHING), max_size=8))
def test_no_response_crashes_the_parser(payloads: list[dict[str, Any]]) -> None:
    withstands(GeminiDialect(), payloads)


@given(st.lists(mutated(CHUNKS), max_size=4), st.integers(0, len(CHUNKS)))
def test_a_stream_with_broken_chunks_is_read_and_can_be_sent_back(
    broken: list[dict[str, Any]], at: int
) -> None:
    reply = gathered([*CHUNKS[:at], *broken, *CHUNKS[at:]])
    results = [Message("tool", "r", tool_call_id=call.id) for call in reply.tool_calls]
    request = asked(messages=(Message("user", "x"), back(reply), *results), grows=True)
    with suppress(ConfigError):  # NaN can be read, but not written
        GeminiDialect().body(request, stream=True)
