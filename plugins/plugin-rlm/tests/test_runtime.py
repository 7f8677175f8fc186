"""The promises of the document, on elizaOS's real runtime with the real engine."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elizaos.types.model import ModelType

from conftest import MakeRuntime
from elizaos_plugin_rlm import create_plugin, plugin, plugin_init, provider_plugin
from models import ECHO, cell

pytest.importorskip("rlm.testing.fake_server", reason="needs recursivelm")
from rlm.testing.fake_server import FakeServer

OPENAI = {"ELIZA_RLM_BACKEND": "openai"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer(rules=[("", ECHO)]) as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.mark.parametrize(
    "model_type",
    [
        ModelType.TEXT_SMALL,
        ModelType.TEXT_LARGE,
        ModelType.TEXT_REASONING_SMALL,
        ModelType.TEXT_REASONING_LARGE,
        ModelType.TEXT_COMPLETION,
        "TEXT_REASONING_SMALL",
        "TEXT_REASONING_LARGE",
        "REASONING_SMALL",
        "REASONING_LARGE",
    ],
)
async def test_every_model_type_answers(
    make_runtime: MakeRuntime, server: FakeServer, model_type: str
) -> None:
    runtime = await make_runtime(OPENAI)
    assert await runtime.use_model(model_type, {"prompt": "Hello, world!"}) == "Hello, world!"
    assert server.count == 1


async def test_both_names_of_the_provider_work(
    make_runtime: MakeRuntime, server: FakeServer
) -> None:
    runtime = await make_runtime(OPENAI)
    for provider in ("rlm", "plugin-rlm"):
        params = {"prompt": "Hello, world!"}
        assert await runtime.use_model(ModelType.TEXT_LARGE, params, provider=provider) == (
            "Hello, world!"
        )
        pieces = runtime.use_model_stream("TEXT_SMALL_STREAM", params, provider=provider)
        assert [piece async for piece in pieces] == ["Hello, ", "world!"]
    with pytest.raises(RuntimeError, match="provider"):
        await runtime.use_model(ModelType.TEXT_LARGE, {"prompt": "a"}, provider="other")


async def test_the_second_provider_name_can_be_loaded_explicitly_too(
    make_runtime: MakeRuntime,
) -> None:
    runtime = await make_runtime(OPENAI, plugins=[provider_plugin, plugin])
    assert [each.name for each in runtime.plugins] == ["bootstrap", "rlm", "plugin-rlm"]


def test_no_model_is_registered_imperatively() -> None:
    folder = Path(inspect.getfile(plugin_init)).parent
    sources = {path.name: path.read_text("utf-8") for path in folder.glob("*.py")}
    assert "plugin.py" in sources
    assert not [name for name, text in sources.items() if re.search(r"register_\w*model", text)]


async def test_streaming_model_types_yield_pieces_of_the_answer(
    make_runtime: MakeRuntime, server: FakeServer
) -> None:
    runtime = await make_runtime(OPENAI)
    text = "  one\n\ntwo   three "
    for model_type in (ModelType.TEXT_SMALL_STREAM, ModelType.TEXT_LARGE_STREAM):
        pieces = [piece async for piece in runtime.use_model_stream(model_type, {"prompt": text})]
        assert "".join(pieces) == text
        assert len(pieces) == 3


async def test_keywords_can_replace_params(make_runtime: MakeRuntime, server: FakeServer) -> None:
    runtime = await make_runtime(OPENAI)
    assert await runtime.use_model(ModelType.TEXT_LARGE, prompt="by keyword") == "by keyword"
    mixed = await runtime.use_model("TEXT_SMALL", {"prompt": "a"}, prompt="b", temperature=0.0)
    assert mixed == "b"
    assert (await runtime.generate_text("plainly")).text == "plainly"


async def test_messages_override_the_prompt_and_the_system_text_can_be_read(
    make_runtime: MakeRuntime, server: FakeServer
) -> None:
    runtime = await make_runtime(OPENAI)
    params = {
        "prompt": "ignored",
        "system": "You are Ada, keeper of the lighthouse.",
        "messages": [{"role": "user", "content": "Who are you?"}],
    }
    answer = await runtime.use_model(ModelType.TEXT_LARGE, params)
    assert ast.literal_eval(answer) == [
        {"role": "system", "content": "You are Ada, keeper of the lighthouse."},
        {"role": "user", "content": "Who are you?"},
    ]
    sent = server.requests[0].asked
    assert sent is not None
    assert "lighthouse" not in sent.text, "the system text is not injected into a prompt"
    assert "Who are you" not in sent.text


async def test_every_control_reaches_the_model_server(
    make_runtime: MakeRuntime, server: FakeServer
) -> None:
    runtime = await make_runtime(OPENAI)
    params = {
        "prompt": "p",
        "model": "gpt-4.1",
        "maxTokens": 1000,
        "temperature": 0.7,
        "topP": 0.9,
        "stopSequences": ["STOP"],
        "user": "somebody",
        "stream": False,
    }
    assert await runtime.use_model(ModelType.TEXT_LARGE, params) == "p"
    asked = server.requests[0].asked
    assert asked is not None
    body = asked.body
    assert asked.model == "gpt-4.1"
    assert asked.max_output_tokens == 1000
    assert (body["temperature"], body["top_p"]) == (0.7, 0.9)
    assert (body["stop"], body["user"]) == (["STOP"], "somebody")


@pytest.mark.parametrize("backend", ["openai", "anthropic", "gemini"])
async def test_controls_that_a_provider_lacks_do_not_fail_the_request(
    make_runtime: MakeRuntime, server: FakeServer, backend: str
) -> None:
    runtime = await make_runtime({"ELIZA_RLM_BACKEND": backend})
    params = {"prompt": "p", "maxTokens": 1000, "temperature": 0.7, "stopSequences": ["STOP"]}
    assert await runtime.use_model("TEXT_LARGE", {**params, "user": "u", "stream": True}) == "p"


async def test_code_of_the_model_runs_and_can_call_models(
    make_runtime: MakeRuntime, server: FakeServer
) -> None:
    ask = cell("FINAL(llm_query('How many?'))")
    with FakeServer(rules=[("How many?", "forty-two"), ("", ask)]) as other:
        config = {**OPENAI, "OPENAI_BASE_URL": other.openai_url, "ELIZA_RLM_SUBCALL_MODEL": "sub"}
        runtime = await make_runtime(config)
        assert await runtime.use_model("TEXT_LARGE", {"prompt": "p"}) == "forty-two"
        models = [each.asked.model for each in other.requests if each.asked]
    assert models == ["gpt-5-mini", "sub"]
    assert server.count == 0, "the runtime's own address counts before the environment's"


async def test_init_stores_the_configuration_and_does_nothing_else() -> None:
    class Bare:
        """A runtime without anything that init could call."""

    runtime: Any = Bare()
    config = {"max_depth": 2}
    await plugin_init(config, runtime)
    assert vars(runtime) == {"rlm_config": {"max_depth": 2}}
    assert runtime.rlm_config is not config


def test_the_plugin_is_declared_as_documented() -> None:
    assert plugin.name == "plugin-rlm"
    assert plugin.models is not None
    assert plugin.streaming_models is not None
    assert set(plugin.models) == {
        *("TEXT_SMALL", "TEXT_LARGE", "TEXT_COMPLETION"),
        *("REASONING_SMALL", "REASONING_LARGE"),
        *("TEXT_REASONING_SMALL", "TEXT_REASONING_LARGE"),
    }
    assert set(plugin.streaming_models) == {"TEXT_SMALL_STREAM", "TEXT_LARGE_STREAM"}
    assert plugin.init is plugin_init
    assert create_plugin({"backend": "openai"}).config == {"backend": "openai"}
