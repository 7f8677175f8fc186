"""Hosted providers by name: what each one receives, and what its replies are worth."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from rlm.clients._dialect import HttpClient
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, Price, Reply, Request, Usage
from rlm.models import about
from rlm.testing.fake_server import FakeServer
from rlm.wiring.registry import PROVIDERS, make_client, missing_key, split_model

KEY = "sk-named-0123456789"


class Named(NamedTuple):
    """A provider: where it is, what it is asked for by default, and how it wants to be asked."""

    provider: str
    address: str
    key_variable: str
    model: str
    cap: str
    asks_for_usage: bool = True


NAMED = [
    Named(
        *("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "mistral-medium-3.5"),
        *("max_tokens", False),
    ),
    Named(
        "deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY", "deepseek-flash", "max_tokens"
    ),
    Named("xai", "https://api.x.ai/v1", "XAI_API_KEY", "grok-4.7", "max_completion_tokens"),
    Named(
        *("together", "https://api.together.ai/v1", "TOGETHER_API_KEY", "openai/gpt-oss-120b"),
        "max_tokens",
    ),
    Named(
        *("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        *("accounts/fireworks/models/gpt-oss-120b", "max_tokens"),
    ),
    Named(
        *("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", "gpt-oss-120b"),
        "max_completion_tokens",
    ),
    Named(
        *("cohere", "https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
        *("command-a-03-2025", "max_tokens", False),
    ),
    Named(
        *("minimax", "https://api.minimax.io/v1", "MINIMAX_API_KEY", "MiniMax-M3"),
        "max_completion_tokens",
    ),
]


def asked(model: str, **facts: Any) -> Request:
    messages = (Message("system", "Be brief."), Message("user", "hi"))
    known: dict[str, Any] = {"model": model, "messages": messages, "max_output_tokens": 50}
    return Request(**{**known, **facts})


async def collected(stream: AsyncIterator[str | Reply]) -> tuple[str, Reply]:
    parts = [part async for part in stream]
    *pieces, reply = parts
    assert isinstance(reply, Reply)
    return "".join(str(piece) for piece in pieces), reply


def reach(named: Named, server: FakeServer) -> tuple[HttpClient, str]:
    """Return the client that `RLM("provider/model")` would use, with the server in its place."""
    provider = PROVIDERS[named.provider]
    variables = {
        named.key_variable: KEY,
        provider.base_url_variables[0]: server.url + urlsplit(named.address).path,
    }
    client, wire_name = make_client(f"{named.provider}/{named.model}", variables)
    assert isinstance(client, HttpClient)
    return client, wire_name


@pytest.mark.parametrize("named", NAMED, ids=lambda named: named.provider)
def test_the_table(named: Named) -> None:
    provider = PROVIDERS[named.provider]
    assert provider.base_url == named.address
    assert provider.key_variables[0] == named.key_variable
    assert provider.default_model == named.model
    assert provider.needs_key
    model = f"{named.provider}/{named.model}"
    told = f"{model} needs a key: set {named.key_variable}, or run `rlm keys set {named.provider}`"
    assert missing_key(model, {}) == told


@pytest.mark.parametrize("named", NAMED, ids=lambda named: named.provider)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_sent_and_what_it_costs(named: Named, stream: bool) -> None:
    usage = {"input_tokens": 1_000, "output_tokens": 200, "cached_tokens": 400}
    async with FakeServer([{"reply": "Hello there.", "usage": usage}]) as server:
        client, wire_name = reach(named, server)
        request = asked(wire_name, sampling={"temperature": 0.3, "stop": ["END"]})
        if stream:
            text, reply = await collected(client.stream(request, timeout_seconds=10))
            assert text == "Hello there."
        else:
            reply = await client.complete(request, timeout_seconds=10)
        await client.close()
        (received,) = server.requests
    assert received.path == f"{urlsplit(named.address).path}/chat/completions"
    assert received.headers["Authorization"] == f"Bearer {KEY}"
    assert received.asked is not None
    body = received.asked.body
    assert body.pop("messages")[0] == {"role": "system", "content": "Be brief."}
    expected: dict[str, Any] = {"model": named.model, named.cap: 50}
    expected |= {"temperature": 0.3, "stop": ["END"]}
    if stream:
        expected["stream"] = True
        if named.asks_for_usage:
            expected["stream_options"] = {"include_usage": True}
    assert body == expected
    assert (reply.text, reply.finish_reason) == ("Hello there.", "stop")
    if stream and not named.asks_for_usage:
        return  # the fake server reports usage in a stream only if it is asked to
    assert reply.usage == Usage(
        input_tokens=1_000, output_tokens=200, cached_tokens=400, requests=1
    )
    price = about(named.provider, named.model).price
    assert isinstance(price, Price)
    cached = price.cached_per_million
    cached = price.input_per_million if cached is None else cached
    dollars = 600 * price.input_per_million + 400 * cached + 200 * price.output_per_million
    assert price.cost(reply.usage) == round(dollars * 10**6)


@pytest.mark.parametrize("named", NAMED, ids=lambda named: named.provider)
@pytest.mark.parametrize(
    ("status", "error", "retryable", "words"),
    [
        (401, "Unauthorized", False, "check the key in {key}"),
        (429, "slow down", True, "wait, lower max_concurrent_calls"),
        (400, "this model's maximum context length is 8 tokens", False, "maximum context length"),
    ],
)
async def test_refusals(named: Named, status: int, error: str, retryable: bool, words: str) -> None:
    async with FakeServer([{"status": status, "error": error}]) as server:
        client, wire_name = reach(named, server)
        with pytest.raises(ModelError) as caught:
            await client.complete(asked(wire_name), timeout_seconds=10)
        await client.close()
    assert (caught.value.status, caught.value.retryable) == (status, retryable)
    assert words.format(key=named.key_variable) in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "provider"),
    [
        ("grok/grok-4.7", "xai"),
        ("x-ai/grok-4.7", "xai"),
        ("together_ai/a/b", "together"),
        ("fireworks_ai/x", "fireworks"),
        ("mistralai/x", "mistral"),
        ("azure-anthropic/claude-sonnet-5-5", "foundry"),
        ("azure_ai/claude-sonnet-5-5", "foundry"),
    ],
)
def test_other_spellings(written: str, provider: str) -> None:
    assert split_model(written)[0] == provider


def test_fireworks_models_may_be_named_without_their_path() -> None:
    whole = "accounts/fireworks/models/gpt-oss-120b"
    assert make_client("fireworks/gpt-oss-120b", {"FIREWORKS_API_KEY": KEY})[1] == whole
    assert make_client(f"fireworks/{whole}", {"FIREWORKS_API_KEY": KEY})[1] == whole
    mine = "accounts/me/models/tuned"
    assert make_client(f"fireworks/{mine}", {"FIREWORKS_API_KEY": KEY})[1] == mine
    assert about("fireworks", "gpt-oss-120b") == about("fireworks", whole)
    assert about("fireworks", "gpt-oss-120b").price is not None


# -- Claude on Microsoft Foundry -------------------------------------------------------------------


@pytest.mark.parametrize(
    "ending", ["", "/", "/anthropic", "/anthropic/v1", "/anthropic/v1/messages"]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_foundry(ending: str, stream: bool) -> None:
    usage = {"input_tokens": 1_000, "output_tokens": 200, "cached_tokens": 400}
    async with FakeServer([{"reply": "Hello there.", "usage": usage}]) as server:
        variables = {
            "ANTHROPIC_FOUNDRY_API_KEY": KEY,
            "ANTHROPIC_FOUNDRY_BASE_URL": server.url + ending,
        }
        client, wire_name = make_client("foundry/claude-sonnet-5-5", variables)
        assert isinstance(client, HttpClient)
        if stream:
            text, reply = await collected(client.stream(asked(wire_name), timeout_seconds=10))
            assert text == "Hello there."
        else:
            reply = await client.complete(asked(wire_name), timeout_seconds=10)
        await client.close()
        (received,) = server.requests
    assert received.path == "/anthropic/v1/messages"
    assert received.headers["api-key"] == KEY
    assert received.headers["anthropic-version"] == "2023-06-01"
    assert [name for name, value in received.headers.items() if KEY in value] == ["api-key"]
    assert received.asked is not None
    assert received.asked.body["model"] == "claude-sonnet-5-5"
    assert received.asked.body["max_tokens"] == 50
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.cached_tokens) == (1_000, 400)
    price = about("foundry", "claude-sonnet-5-5").price
    assert price == about("anthropic", "claude-sonnet-5-5").price != None  # noqa: E711
    assert about("foundry", "our-claude").price is None, "a deployment may have any name"


def test_a_foundry_resource_is_enough() -> None:
    variables = {"ANTHROPIC_FOUNDRY_API_KEY": KEY, "ANTHROPIC_FOUNDRY_RESOURCE": "my-place"}
    client, _ = make_client("foundry/claude-sonnet-5-5", variables)
    assert repr(client) == "AnthropicClient('my-place.services.ai.azure.com')"
    for wrong in ("my place", "evil.example.com/", "a@b", "-a"):
        with pytest.raises(ConfigError, match="ANTHROPIC_FOUNDRY_RESOURCE"):
            make_client("foundry/a", {**variables, "ANTHROPIC_FOUNDRY_RESOURCE": wrong})
    with pytest.raises(ConfigError, match="needs an address: set ANTHROPIC_FOUNDRY_BASE_URL"):
        make_client("foundry/a", {"ANTHROPIC_FOUNDRY_API_KEY": KEY})


async def test_a_refused_foundry_key_names_its_variable() -> None:
    async with FakeServer([{"status": 401, "error": "no"}]) as server:
        variables = {"ANTHROPIC_FOUNDRY_API_KEY": KEY, "ANTHROPIC_FOUNDRY_BASE_URL": server.url}
        client, wire_name = make_client("foundry/claude-sonnet-5-5", variables)
        with pytest.raises(ModelError, match="check the key in ANTHROPIC_FOUNDRY_API_KEY"):
            await client.complete(asked(wire_name), timeout_seconds=10)
        await client.close()
