"""The real upstream package behind `from rlm import RLM`, on the real runtime."""

import ast
import asyncio
from collections.abc import Iterator
from importlib.metadata import distributions
from typing import Any

import pytest

from conftest import MakeRuntime
from elizaos_plugin_rlm import RLMClient, RLMConfig
from endpoint import Endpoint, endpoint

if not list(distributions(name="rlms")):
    pytest.skip("needs the upstream package rlms", allow_module_level=True)

# Its packages leave warnings of their own, on which this plugin has no say.
pytestmark = pytest.mark.filterwarnings("ignore")
ECHO = "```repl\nanswer['content'] = repr(context)\nanswer['ready'] = True\n```"
ASK = "```repl\nanswer['content'] = llm_query('Small question.')\nanswer['ready'] = True\n```"


def text_of(body: dict[str, Any]) -> str:
    return "\n".join(str(message["content"]) for message in body["messages"])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with endpoint(lambda _: ECHO) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-fake")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("ELIZA_RLM_BACKEND", "openai")
        yield server


async def test_every_model_type_and_both_provider_names_work(
    make_runtime: MakeRuntime, server: Endpoint
) -> None:
    runtime = await make_runtime()
    for model_type in ("TEXT_SMALL", "TEXT_LARGE", "REASONING_SMALL", "TEXT_COMPLETION"):
        for provider in ("rlm", "plugin-rlm"):
            answer = await runtime.use_model(model_type, {"prompt": "hi"}, provider=provider)
            assert answer == "'hi'"
    pieces = runtime.use_model_stream("TEXT_LARGE_STREAM", {"prompt": "a b"})
    assert "".join([piece async for piece in pieces]) == "'a b'"


async def test_messages_and_system_text_are_the_context(
    make_runtime: MakeRuntime, server: Endpoint
) -> None:
    runtime = await make_runtime()
    params = {"messages": [{"role": "user", "content": "Who?"}], "system": "You are Ada."}
    assert ast.literal_eval(await runtime.use_model("TEXT_LARGE", params)) == [
        {"role": "system", "content": "You are Ada."},
        {"role": "user", "content": "Who?"},
    ]
    assert "Ada" not in text_of(server.bodies[0])


async def test_controls_and_overrides_apply_to_one_request_only(
    make_runtime: MakeRuntime, server: Endpoint
) -> None:
    runtime = await make_runtime()
    given = {"model": "m1", "temperature": 0.7, "topP": 0.9, "maxTokens": 1000, "user": "u"}
    await runtime.use_model("TEXT_LARGE", {"prompt": "p", "stopSequences": ["STOP"], **given})
    await runtime.use_model("TEXT_LARGE", {"prompt": "p"})
    first, second = server.bodies
    assert (first["model"], first["temperature"], first["top_p"]) == ("m1", 0.7, 0.9)
    assert (first["max_completion_tokens"], first["stop"], first["user"]) == (1000, ["STOP"], "u")
    assert second["model"] == "gpt-5-mini"
    assert "temperature" not in second


async def test_tokens_are_counted_but_there_is_no_trajectory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reply(body: dict[str, Any]) -> str:
        return "small" if "Small question." in text_of(body)[-40:] else ASK

    monkeypatch.setenv("OPENAI_API_KEY", "sk-fake")
    with endpoint(reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        config = RLMConfig(backend="openai", root_model="root", subcall_model="sub")
        client = RLMClient(config)
        result = await client.infer("text")
    assert result.text == "small"
    assert result.trajectory is None
    assert result.cost is not None
    assert (result.cost.root_input_tokens, result.cost.subcall_input_tokens) == (100, 100)
    assert client.get_cost_summary()["requests"] == 2


async def test_requests_run_concurrently(make_runtime: MakeRuntime, server: Endpoint) -> None:
    runtime = await make_runtime()
    requests = [runtime.use_model("TEXT_LARGE", {"prompt": f"p{n}"}) for n in range(4)]
    assert await asyncio.gather(*requests) == [f"'p{n}'" for n in range(4)]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("ELIZA_RLM_BACKEND", "gemini"),
        ("ELIZA_RLM_BACKEND", "no-such"),
        ("ELIZA_RLM_ENV", "no-such"),
    ],
)
async def test_an_invalid_setting_is_answered_by_the_stub(
    make_runtime: MakeRuntime, server: Endpoint, setting: str, value: str
) -> None:
    runtime = await make_runtime({setting: value})
    answer = await runtime.use_model("TEXT_LARGE", {"prompt": "p"})
    assert answer == "[RLM STUB] RLM backend not available"
    assert server.bodies == []


async def test_a_key_in_the_runtimes_settings_is_used(
    make_runtime: MakeRuntime, server: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    runtime = await make_runtime({"OPENAI_API_KEY": "sk-of-this-agent"})
    assert await runtime.use_model("TEXT_LARGE", {"prompt": "p"}) == "'p'"


async def test_an_unreachable_server_is_an_error(
    make_runtime: MakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-fake")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    runtime = await make_runtime({"ELIZA_RLM_BACKEND": "openai"})
    answer = await runtime.use_model("TEXT_LARGE", {"prompt": "p"})
    assert answer.startswith("[RLM ERROR] ")
