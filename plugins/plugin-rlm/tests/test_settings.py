"""Precedence of settings: the request, the runtime, the plugin, the environment."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import MakeRuntime, client_of
from doubles import RuntimeDouble
from elizaos_plugin_rlm import RLMClient, RLMConfig, create_plugin, handle_text_generation
from elizaos_plugin_rlm.settings import config_of
from models import ECHO, cell

pytest.importorskip("rlm.testing.fake_server", reason="needs recursivelm")
from rlm.testing.fake_server import FakeServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer(rules=[("", ECHO)]) as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("ELIZA_RLM_BACKEND", "openai")
        yield server


def asked_models(server: FakeServer) -> list[str]:
    return [each.asked.model for each in server.requests if each.asked]


async def test_sources_of_settings_have_an_order_of_precedence(
    make_runtime: MakeRuntime, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "ELIZA_RLM_ROOT_MODEL"
    bare = await make_runtime(plugins=[create_plugin()])
    await bare.use_model("TEXT_LARGE", {"prompt": "p"})
    monkeypatch.setenv(key, "of-environment")
    await bare.use_model("TEXT_LARGE", {"prompt": "p"})
    configured = create_plugin({key: "of-plugin"})
    plugged = await make_runtime(plugins=[configured])
    await plugged.use_model("TEXT_LARGE", {"prompt": "p"})
    other = await make_runtime({key: "of-runtime"}, plugins=[configured])
    await other.use_model("TEXT_LARGE", {"prompt": "p"})
    await other.use_model("TEXT_LARGE", {"prompt": "p", "model": "of-request"})
    await other.use_model("TEXT_LARGE", {"prompt": "p"})
    assert asked_models(server) == [
        *("gpt-5-mini", "of-environment", "of-plugin", "of-runtime", "of-request", "of-runtime")
    ]


async def test_a_changed_setting_applies_from_then_on(
    make_runtime: MakeRuntime, server: FakeServer
) -> None:
    runtime = await make_runtime()
    for model in ("first", "second"):
        runtime.set_setting("ELIZA_RLM_ROOT_MODEL", model)
        await runtime.use_model("TEXT_LARGE", {"prompt": "p"})
    assert asked_models(server) == ["first", "second"]


async def test_keys_are_read_from_the_runtimes_settings(
    make_runtime: MakeRuntime, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    keyless, keyed = await make_runtime(), await make_runtime({"OPENAI_API_KEY": "of-this-agent"})
    assert await keyless.use_model("TEXT_LARGE", {"prompt": "p"}) == (
        "[RLM STUB] RLM backend not available"
    )
    assert server.count == 0
    assert await keyed.use_model("TEXT_LARGE", {"prompt": "p"}) == "p"
    headers = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert headers["authorization"] == "Bearer of-this-agent"


async def test_two_runtimes_in_one_process_have_separate_settings(
    make_runtime: MakeRuntime, server: FakeServer
) -> None:
    """By settings and by their own plugins, in any order and concurrently."""
    ada = await make_runtime({"ELIZA_RLM_ROOT_MODEL": "ada"})
    bob = await make_runtime(plugins=[create_plugin({"root_model": "bob"})])
    for runtime in (ada, bob, bob, ada):
        await runtime.use_model("TEXT_LARGE", {"prompt": "p"})
    assert asked_models(server) == ["ada", "bob", "bob", "ada"]
    both = [each.use_model("TEXT_LARGE", {"prompt": "p"}) for each in (ada, bob) * 3]
    await asyncio.gather(*both)
    assert sorted(asked_models(server)[4:]) == ["ada"] * 3 + ["bob"] * 3
    summaries = [client_of(each).get_cost_summary() for each in (ada, bob)]
    assert [summary["answers"] for summary in summaries] == [5, 5]


async def test_concurrent_overrides_do_not_affect_each_other_or_later_requests(
    make_runtime: MakeRuntime, server: FakeServer
) -> None:
    runtime = await make_runtime({"ELIZA_RLM_ROOT_MODEL": "usual"})
    overrides = [{"model": f"m{n}", "temperature": n / 10, "prompt": f"p{n}"} for n in range(8)]
    requests = [runtime.use_model("TEXT_LARGE", each) for each in overrides]
    assert await asyncio.gather(*requests) == [f"p{n}" for n in range(8)]
    sent = {
        each.asked.model: each.asked.body["temperature"] for each in server.requests if each.asked
    }
    assert sent == {f"m{n}": n / 10 for n in range(8)}
    await runtime.use_model("TEXT_LARGE", {"prompt": "p"})
    last = server.requests[-1].asked
    assert last is not None
    assert last.model == "usual"
    assert "temperature" not in last.body


async def test_a_small_double_of_the_runtime_is_enough(server: FakeServer) -> None:
    double: Any = RuntimeDouble(OPENAI_API_KEY="k", ELIZA_RLM_ROOT_MODEL="of-double")
    assert await handle_text_generation(double, {"prompt": "p"}) == "p"
    assert asked_models(server) == ["of-double"]


def test_overrides_may_be_in_camel_case_or_snake_case() -> None:
    params = {"maxIterations": 9, "max_depth": 2, "subcallModel": "s", "root_model": "r"}
    config = config_of(params, None, RLMConfig(max_iterations=1))
    assert (config.max_iterations, config.max_depth) == (9, 2)
    assert (config.subcall_model, config.root_model) == ("s", "r")


def test_a_request_cannot_redirect_our_key() -> None:
    params = {"backend_kwargs": {"base_url": "http://elsewhere"}, "environmentKwargs": {"a": 1}}
    config = config_of(params, None, RLMConfig())
    assert (config.backend_kwargs, config.environment_kwargs) == ({}, {})


async def test_a_client_with_its_own_configuration_reads_no_other_source(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELIZA_RLM_ROOT_MODEL", "of-environment")
    async with RLMClient(RLMConfig(backend="openai", root_model="mine")) as client:
        assert (await client.infer("p")).text == "p"
    assert asked_models(server) == ["mine"]


async def test_options_of_one_backend_do_not_reach_another(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider that answers calls must not see a key of the root's provider."""
    with FakeServer(rules=[("How many?", "two")]) as other:
        monkeypatch.setenv("VLLM_BASE_URL", other.openai_url)
        with FakeServer(rules=[("", cell("FINAL(llm_query('How many?'))"))]) as root:
            config = RLMConfig(
                backend="openai",
                backend_kwargs={"base_url": root.openai_url, "api_key": "of-the-root"},
                subcall_backend="vllm",
                subcall_model="small",
            )
            assert (await RLMClient(config).infer("p")).text == "two"
        assert "of-the-root" in str(root.requests[0].headers)
        assert "of-the-root" not in str(other.requests[0].headers)
    assert server.count == 0


def test_default_models_are_those_of_the_engine() -> None:
    from rlm.wiring.registry import PROVIDERS

    from elizaos_plugin_rlm.engines import DEFAULT_MODELS

    known = {name: each.default_model for name, each in PROVIDERS.items() if each.default_model}
    assert {name: DEFAULT_MODELS[name] for name in known} == known
