"""Without an engine the plugin loads, and always gives the same answer."""

import logging
import sys
from typing import Any

import pytest
from elizaos.plugin import load_plugin
from elizaos.types.model import ModelType

from conftest import MakeRuntime
from doubles import RuntimeDouble, upstream_double
from elizaos_plugin_rlm import RLMClient, RLMConfig, handle_text_generation, plugin

STUB = "[RLM STUB] RLM backend not available"


@pytest.mark.usefixtures("no_engine")
async def test_without_an_engine_every_model_type_answers_with_the_stub(
    make_runtime: MakeRuntime,
) -> None:
    runtime = await make_runtime()
    assert plugin.models is not None
    for model_type in plugin.models:
        assert await runtime.use_model(model_type, {"prompt": "Hello, world!"}) == STUB
    streamed = runtime.use_model_stream(ModelType.TEXT_LARGE_STREAM, {"prompt": "Hello, world!"})
    assert "".join([piece async for piece in streamed]) == STUB


@pytest.mark.usefixtures("no_engine")
async def test_without_an_engine_any_request_gets_the_stub() -> None:
    double: Any = RuntimeDouble()
    asked: list[dict[str, Any]] = [{}, {"messages": 7}, {"prompt": "x", "model": "y"}]
    for params in asked:
        assert await handle_text_generation(double, params) == STUB


@pytest.mark.usefixtures("no_engine")
async def test_the_client_logs_why_it_uses_the_stub(caplog: pytest.LogCaptureFixture) -> None:
    client = RLMClient(RLMConfig())
    with caplog.at_level(logging.WARNING, "elizaos_plugin_rlm"):
        results = [await client.infer("a"), await client.infer("b")]
    assert all(result.stub and result.text == STUB for result in results)
    assert "no engine can be imported" in str(results[0].error)
    assert await client.unavailable_reason() == results[0].error
    assert len(caplog.records) == 1, "the same reason is logged once"


async def test_another_module_called_rlm_is_not_an_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "rlm", type(sys)("rlm"))
    assert (await RLMClient(RLMConfig()).infer("a")).text == STUB


async def test_an_engine_that_fails_to_initialise_is_replaced_by_the_stub(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = upstream_double([])

    def refuse(*_: Any) -> None:
        raise ValueError("API key is required: sk-0123456789")

    vars(modules["rlm.clients"]).update(get_client=refuse)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789")
    result = await RLMClient(RLMConfig()).infer("a")
    assert result.text == STUB
    assert result.error == "API key is required: [hidden]"


async def test_an_invalid_setting_leads_to_the_stub(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime({"ELIZA_RLM_MAX_ITERATIONS": "many"})
    assert await runtime.use_model("TEXT_LARGE", {"prompt": "a"}) == STUB
    assert "whole number" in str(await RLMClient(runtime=runtime).unavailable_reason())


async def test_a_runtime_with_unreadable_settings_gets_the_stub(
    make_runtime: MakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await make_runtime({"ELIZA_RLM_BACKEND": "openai"})
    monkeypatch.setenv("NODE_ENV", "production")  # elizaOS then insists on a salt of one's own
    assert await handle_text_generation(runtime, {"prompt": "a"}) == STUB
    assert "SECRET_SALT" in str(await RLMClient(runtime=runtime).unavailable_reason())


def test_elizaos_loads_it_by_name() -> None:
    assert load_plugin("elizaos_plugin_rlm") is plugin
