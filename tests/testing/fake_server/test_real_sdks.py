"""The providers' own libraries read what the fake server writes, whole and as a stream."""

from collections.abc import Iterator
from typing import Any

import pytest

from rlm.testing.fake_server import FakeServer

pytestmark = pytest.mark.heavy

TEXT = "Grüße aus Köln 🎉, und mehr"
TOOL = {"name": "look_up", "arguments": {"city": "Köln", "depth": 2}}
EVERYTHING = {"reply": TEXT, "reasoning": "first think, then talk", "tool_calls": [TOOL]}
USAGE = {
    "input_tokens": 100,
    "output_tokens": 50,
    "cached_tokens": 30,
    "cache_write_tokens": 20,
    "reasoning_tokens": 10,
}
ASKED = [{"role": "user", "content": "hello"}]


def sdk(name: str) -> Any:
    return pytest.importorskip(name, reason=f"the SDK {name} is not installed; see make test-sdks")


_clients: list[Any] = []


def kept(client: Any) -> Any:
    """A client that is closed after the test; who leaves that to the collector is warned of."""
    _clients.append(client)
    return client


@pytest.fixture
def server() -> Iterator[FakeServer]:
    answers: list[Any] = [
        {"when": "limited", "status": 429, "error": "slow down", "retry_after": 7},
        {"when": "refused", "refusal": "I can't help with that"},
        {"when": "long", "reply": "never en", "finish_reason": "length"},
        {"when": "broken", "reply": TEXT, "behaviour": "error_event", "error": "it broke"},
        {"when": "hello", **EVERYTHING, "usage": USAGE},
    ]
    with FakeServer(answers) as running:
        yield running
        while _clients:
            _clients.pop().close()


# -- openai: chat completions ----------------------------------------------------------------------


def openai_client(server: FakeServer) -> Any:
    return kept(sdk("openai").OpenAI(base_url=server.openai_url, api_key="fake", max_retries=0))


def chat(server: FakeServer, text: str = "hello", **options: Any) -> Any:
    return openai_client(server).chat.completions.create(
        model="m-1", messages=[{"role": "user", "content": text}], **options
    )


def test_chat_plain(server: FakeServer) -> None:
    reply = chat(server)
    message = reply.choices[0].message
    assert (message.content, message.reasoning_content) == (TEXT, EVERYTHING["reasoning"])
    assert message.tool_calls[0].function.name == "look_up"
    assert '"depth": 2' in message.tool_calls[0].function.arguments
    assert reply.choices[0].finish_reason == "tool_calls"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (100, 50)
    assert reply.usage.prompt_tokens_details.cached_tokens == 30
    assert reply.usage.completion_tokens_details.reasoning_tokens == 10
    assert reply.model == "m-1"


def test_chat_streamed_through_the_sdks_own_accumulator(server: FakeServer) -> None:
    manager = openai_client(server).chat.completions.stream(
        model="m-1", messages=ASKED, stream_options={"include_usage": True}
    )
    with manager as stream:
        reply = stream.get_final_completion()
    message = reply.choices[0].message
    assert message.content == TEXT
    assert message.tool_calls[0].function.name == "look_up"
    assert '"depth": 2' in message.tool_calls[0].function.arguments
    assert reply.usage.total_tokens == 150


def test_chat_refusal_length_and_errors(server: FakeServer) -> None:
    openai = sdk("openai")
    assert chat(server, "refused").choices[0].message.refusal == "I can't help with that"
    assert chat(server, "long").choices[0].finish_reason == "length"
    with pytest.raises(openai.RateLimitError) as caught:
        chat(server, "limited")
    assert "slow down" in str(caught.value)
    assert caught.value.response.headers["retry-after"] == "7"
    with pytest.raises(openai.APIError, match="it broke"):
        list(chat(server, "broken", stream=True))


def test_models_are_listed(server: FakeServer) -> None:
    assert [model.id for model in openai_client(server).models.list()] == ["fake-model"]


def test_azure_deployments(server: FakeServer) -> None:
    options = {"azure_endpoint": server.url, "api_version": "2024-10-21", "max_retries": 0}
    client = kept(sdk("openai").AzureOpenAI(api_key="fake", **options))
    reply = client.chat.completions.create(model="mine", messages=ASKED)
    assert (reply.choices[0].message.content, reply.model) == (TEXT, "mine")
    assert server.requests[-1].path == "/openai/deployments/mine/chat/completions"


# -- openai: responses -----------------------------------------------------------------------------


def checked_response(reply: Any) -> None:
    reasoning, message, call = reply.output
    assert reply.output_text == TEXT
    assert reasoning.summary[0].text == EVERYTHING["reasoning"]
    assert message.content[0].text == TEXT
    assert (call.type, call.name) == ("function_call", "look_up")
    assert '"depth": 2' in call.arguments
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (100, 50)
    assert reply.usage.input_tokens_details.cached_tokens == 30
    assert reply.usage.output_tokens_details.reasoning_tokens == 10


def test_responses_plain(server: FakeServer) -> None:
    reply = openai_client(server).responses.create(model="m-1", input="hello")
    checked_response(reply)
    assert reply.status == "completed"


def test_responses_streamed_through_the_sdks_own_accumulator(server: FakeServer) -> None:
    with openai_client(server).responses.stream(model="m-1", input="hello") as stream:
        kinds = [event.type for event in stream]
        checked_response(stream.get_final_response())
    assert "response.output_text.delta" in kinds
    assert "response.reasoning_summary_text.delta" in kinds
    assert kinds[-1] == "response.completed"


def test_responses_refusal_length_and_errors(server: FakeServer) -> None:
    openai = sdk("openai")
    create = openai_client(server).responses.create
    refused = create(model="m-1", input="refused")
    assert refused.output[0].content[0].refusal == "I can't help with that"
    cut = create(model="m-1", input="long")
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    with pytest.raises(openai.RateLimitError, match="slow down"):
        create(model="m-1", input="limited")
    assert create(model="m-1", input="broken").error.message == "it broke"
    with openai_client(server).responses.stream(model="m-1", input="refused") as stream:
        assert stream.get_final_response().output[0].content[0].type == "refusal"


# -- anthropic -------------------------------------------------------------------------------------


def anthropic_client(server: FakeServer) -> Any:
    return kept(sdk("anthropic").Anthropic(base_url=server.url, api_key="fake", max_retries=0))


def asked(text: str) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"model": "m-1", "max_tokens": 500, "messages": [message]}


def checked_message(reply: Any) -> None:
    thinking, text, call = reply.content
    assert (thinking.thinking, bool(thinking.signature)) == (EVERYTHING["reasoning"], True)
    assert text.text == TEXT
    assert (call.name, call.input) == ("look_up", TOOL["arguments"])
    assert reply.stop_reason == "tool_use"
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (50, 50)
    assert reply.usage.cache_read_input_tokens == 30
    assert reply.usage.cache_creation_input_tokens == 20


def test_anthropic_plain(server: FakeServer) -> None:
    checked_message(anthropic_client(server).messages.create(**asked("hello")))


def test_anthropic_streamed_through_the_sdks_own_accumulator(server: FakeServer) -> None:
    with anthropic_client(server).messages.stream(**asked("hello")) as stream:
        assert "".join(stream.text_stream) == TEXT
        checked_message(stream.get_final_message())


def test_anthropic_refusal_length_and_errors(server: FakeServer) -> None:
    anthropic = sdk("anthropic")
    client = anthropic_client(server)
    assert client.messages.create(**asked("refused")).stop_reason == "refusal"
    assert client.messages.create(**asked("long")).stop_reason == "max_tokens"
    with pytest.raises(anthropic.RateLimitError, match="slow down"):
        client.messages.create(**asked("limited"))
    with (
        pytest.raises(anthropic.APIStatusError, match="it broke"),
        client.messages.stream(**asked("broken")) as stream,
    ):
        stream.get_final_message()


# -- gemini ----------------------------------------------------------------------------------------


@pytest.fixture
def gemini(server: FakeServer) -> Iterator[Any]:
    genai = sdk("google.genai")
    client = genai.Client(api_key="fake", http_options={"base_url": server.url})
    yield client.models  # the client must live on: without it, its connections are closed
    client.close()


def checked_parts(parts: list[Any]) -> None:
    assert "".join(p.text for p in parts if p.thought and p.text) == EVERYTHING["reasoning"]
    assert "".join(p.text for p in parts if p.text and not p.thought) == TEXT
    (call,) = [part.function_call for part in parts if part.function_call]
    assert (call.name, call.args) == ("look_up", TOOL["arguments"])
    assert any(part.thought_signature for part in parts)


def test_gemini_plain(gemini: Any) -> None:
    reply = gemini.generate_content(model="m-1", contents="hello")
    checked_parts(reply.candidates[0].content.parts)
    used = reply.usage_metadata
    assert (used.prompt_token_count, used.candidates_token_count) == (100, 40)
    assert (used.thoughts_token_count, used.cached_content_token_count) == (10, 30)
    assert (used.total_token_count, reply.model_version) == (150, "m-1")


def test_gemini_streamed(gemini: Any) -> None:
    chunks = list(gemini.generate_content_stream(model="m-1", contents="hello"))
    checked_parts([part for each in chunks for part in each.candidates[0].content.parts])
    assert len(chunks) > 3
    assert chunks[-1].candidates[0].finish_reason.name == "STOP"


def test_gemini_refusal_length_and_errors(gemini: Any) -> None:
    errors = sdk("google.genai.errors")
    refused = gemini.generate_content(model="m-1", contents="refused")
    assert refused.candidates[0].finish_reason.name == "SAFETY"
    cut = gemini.generate_content(model="m-1", contents="long")
    assert cut.candidates[0].finish_reason.name == "MAX_TOKENS"
    with pytest.raises(errors.ClientError, match="slow down"):
        gemini.generate_content(model="m-1", contents="limited")
