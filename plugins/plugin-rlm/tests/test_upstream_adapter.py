"""The adapter of the upstream package, with a double that only blocks."""

import asyncio
import sys
import threading
from typing import Any

import pytest

from doubles import upstream_double
from elizaos_plugin_rlm import RLMClient, RLMConfig


def install(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for name, module in upstream_double(made, *arguments).items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


async def test_the_event_loop_continues_while_the_engine_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, turns = threading.Event(), 0
    install(monkeypatch, gate)
    request = asyncio.create_task(RLMClient(RLMConfig()).infer("hello"))
    while turns < 100:
        await asyncio.sleep(0.001)
        turns += 1
        assert not request.done()
    gate.set()
    assert (await request).text == "asked: hello"


async def test_a_cancelled_request_raises_at_once_while_its_thread_finishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = threading.Event()
    made = install(monkeypatch, gate)
    request = asyncio.create_task(RLMClient(RLMConfig()).infer("hello"))
    while not made:
        await asyncio.sleep(0.001)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    gate.set()


async def test_all_options_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    made = install(monkeypatch)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    config = RLMConfig(backend="openai", root_model="big", subcall_model="small", max_iterations=7)
    result = await RLMClient(config).infer(
        "hello",
        {"temperature": 0.5, "topK": 3, "maxTokens": 900, "maxDepth": 2, "environment": "docker"},
    )
    assert result.text == "asked: hello"
    client = {
        "api_key": "sk-1",
        "base_url": "http://localhost:1/v1",
        "sampling_args": {"temperature": 0.5, "max_tokens": 900, "extra_body": {"top_k": 3}},
    }
    assert made == [
        {
            "backend": "openai",
            "backend_kwargs": {"model_name": "big", **client},
            "other_backends": ["openai"],
            "other_backend_kwargs": [{"model_name": "small", **client}],
            "environment": "docker",
            "environment_kwargs": {},
            "max_iterations": 7,
            "max_depth": 2,
            "max_budget": None,
            "max_timeout": None,
            "verbose": False,
        }
    ]


async def test_options_of_one_backend_do_not_reach_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = install(monkeypatch)
    config = RLMConfig(
        backend="openai",
        backend_kwargs={"api_key": "of-the-root"},
        subcall_backend="anthropic",
    )
    await RLMClient(config).infer("hello")
    assert made[0]["backend_kwargs"]["api_key"] == "of-the-root"
    assert made[0]["other_backend_kwargs"] == [{"model_name": "claude-sonnet-5-5"}]


async def test_a_failing_engine_returns_an_error_and_does_not_raise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, None, RuntimeError("no\nroom  left"))
    result = await RLMClient(RLMConfig()).infer("hello")
    assert (result.text, result.stub) == ("[RLM ERROR] no room left", False)


async def test_a_temporary_failure_is_retried_max_retries_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = install(monkeypatch, None, ConnectionError("gone"))
    client = RLMClient(RLMConfig(max_retries=2, retry_seconds=0.0))
    assert (await client.infer("hello")).text == "[RLM ERROR] gone"
    assert len(made) == 3
    made = install(monkeypatch, None, ValueError("wrong"))
    assert (await client.infer("hello")).text == "[RLM ERROR] wrong"
    assert len(made) == 1


async def test_features_of_our_engine_are_not_claimed_for_the_upstream_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch)
    for options in ({"backend": "elizaos"}, {"strategy": "auto"}):
        result = await RLMClient(RLMConfig()).infer("hello", options)
        assert result.stub
        assert "needs recursivelm" in str(result.error)
