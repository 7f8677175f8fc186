"""Models of the real `llm` package, with a plugin of our own; skipped where it is absent."""

import asyncio
import base64
import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm.clients.llm import LLMClient
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, ModelInfo, Reply, Request, ToolCall, ToolSpec, Usage
from rlm.protocols import Client
from tests.clients import llm_models
from tests.clients.misbehaving import asked


def library() -> Any:
    return importlib.import_module("llm")


has_llm = importlib.util.find_spec("llm") is not None
real = pytest.mark.skipif(not has_llm, reason="llm is not installed; `make test-adapters` has it")
pytestmark = pytest.mark.filterwarnings("default")
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 8).decode()
LOOK = ToolSpec(name="look", description="Looks.", parameters={"type": "object"})


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The plugin's models; llm keeps its keys and aliases in a folder of the test's own."""
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    llm = library()
    made = llm_models.plugin(llm)
    llm.plugins.pm.register(made, name="rlm-test")
    yield made
    llm.plugins.pm.unregister(made)


def to(model: str, text: str = "hi", **facts: Any) -> Request:
    return asked(text, model=model, **facts)


async def replied(request: Request, **options: Any) -> Reply:
    client: Client = LLMClient.for_model(request.model, **options)
    return await client.complete(request, timeout_seconds=10)


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "llm", None)
    with pytest.raises(ConfigError, match=r"pip install 'recursivelm\[llm\]'"):
        LLMClient.for_model("any")


@real
@pytest.mark.parametrize("model", ["blocking", "waiting"])
async def test_a_plain_request_and_a_stream(models: Any, model: str) -> None:
    reply = await replied(to(model))
    assert (reply.text, reply.finish_reason, reply.model) == ("echo: hi", "stop", f"{model}-2031")
    assert reply.usage == Usage(7, 3, cached_tokens=2, reasoning_tokens=1, requests=1)
    client = LLMClient()
    parts = [part async for part in client.stream(to(model), timeout_seconds=10)]
    assert parts[:-1] == ["echo", ": ", "hi"]
    assert parts[-1] == reply
    assert models.threads == {"blocking": {"rlm-llm"}, "waiting": {"MainThread"}}[model]


@real
@pytest.mark.parametrize("model", ["blocking", "waiting"])
async def test_a_whole_conversation_reaches_new_and_old_plugins(models: Any, model: str) -> None:
    image = {"type": "image", "media_type": "image/png", "data": PIXEL}
    call = ToolCall(id="c1", name="look", arguments={"at": 3})
    messages = (
        Message("system", "Be brief."),
        Message("user", [{"type": "text", "text": "What is this?"}, image]),
        Message("assistant", "Let me look.", tool_calls=(call,)),
        Message("tool", "a cat", tool_call_id="c1"),
        Message("user", "And now?"),
    )
    await replied(to(model, messages=messages, tools=(LOOK,)))
    seen = models.prompts[-1]
    assert seen["messages"] == [
        {"role": "system", "parts": [{"type": "text", "text": "Be brief."}]},
        {
            "role": "user",
            "parts": [
                {"type": "text", "text": "What is this?"},
                {"type": "attachment", "attachment": {"type": "image/png", "content": PIXEL}},
            ],
        },
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "text": "Let me look."},
                {
                    "type": "tool_call",
                    "name": "look",
                    "arguments": {"at": 3},
                    "tool_call_id": "c1",
                },
            ],
        },
        {
            "role": "tool",
            "parts": [
                {"type": "tool_result", "name": "look", "output": "a cat", "tool_call_id": "c1"}
            ],
        },
        {"role": "user", "parts": [{"type": "text", "text": "And now?"}]},
    ]
    assert (seen["prompt"], seen["system"], seen["tools"]) == ("And now?", "Be brief.", ["look"])
    assert seen["results"] == [("look", "a cat")]
    assert seen["history"] == [("What is this?", 1, "Let me look.", ["look"])]


@real
async def test_parts_in_an_order_llm_cannot_express_stay_in_the_chain(models: Any) -> None:
    image = {"type": "image", "media_type": "image/png", "data": PIXEL}
    mixed = [image, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    await replied(to("blocking", messages=(Message("user", mixed),)))
    kinds = [part["type"] for part in models.prompts[-1]["messages"][0]["parts"]]
    assert kinds == ["attachment", "text", "text"]
    with pytest.raises(ConfigError, match="base64"):
        await replied(to("blocking", messages=(Message("user", [{"type": "image", "data": "?"}]),)))
    with pytest.raises(ConfigError, match="sound"):
        await replied(to("blocking", messages=(Message("user", [{"type": "sound"}]),)))


@real
async def test_tool_calls_and_reasoning_are_returned(models: Any) -> None:
    reply = await replied(to("blocking", "CALL", tools=(LOOK,)))
    assert reply.tool_calls == (ToolCall(id="t1", name="look", arguments={"at": 1}),)
    assert reply.finish_reason == "tool_calls"
    reply = await replied(to("waiting", "THINK"))
    assert (reply.text, reply.reasoning) == ("done", "hm")


@real
async def test_signed_parts_are_sent_back_unchanged(models: Any) -> None:
    first = await replied(to("waiting", "SIGN"))
    assert first.opaque
    json.dumps(first.opaque)
    messages = (
        Message("user", "SIGN"),
        Message("assistant", first.text, opaque=first.opaque),
        Message("user", "hi"),
    )
    await replied(to("waiting", messages=messages))
    turn = models.prompts[-1]["messages"][1]
    assert turn["parts"][0]["provider_metadata"] == {"signature": "abc"}
    foreign = Message("assistant", "x", opaque={"tool_calls": [1]})
    await replied(to("waiting", messages=(messages[0], foreign, messages[2])))
    assert models.prompts[-1]["messages"][1]["parts"] == [{"type": "text", "text": "x"}]


@real
async def test_sampling_and_the_cap_use_the_models_own_option_names(models: Any) -> None:
    sampling = {"temperature": 0.5, "stop": ["x"], "max_tokens": 9_999}
    await replied(to("blocking", sampling=sampling), options={"seed": 4})
    assert models.prompts[-1]["options"] == {
        "temperature": 0.5,
        "stop_sequences": ["x"],
        "seed": 4,
        "max_output_tokens": 50,
    }
    await replied(to("blocking", sampling={"max_completion_tokens": 7}))
    assert models.prompts[-1]["options"]["max_output_tokens"] == 7
    for wrong, words in (({"top_k": 3}, "top_k"), ({"n": 2}, "n must be 1")):
        with pytest.raises(ConfigError, match=words):
            await replied(to("blocking", sampling=wrong))


@real
async def test_a_schema_is_passed_to_the_model(models: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    await replied(to("blocking", sampling={"response_format": wanted}))
    assert models.prompts[-1]["schema"] == schema


@real
async def test_a_model_without_a_cap_is_cut_off(models: Any) -> None:
    reply = await replied(to("endless", max_output_tokens=4))
    assert (reply.finish_reason, reply.usage) == ("length", None)
    assert 16 < len(reply.text) < 40
    assert await asyncio.to_thread(models.closed.wait, 10)


@real
async def test_a_reply_that_fills_the_cap_has_the_finish_reason_length(models: Any) -> None:
    assert (await replied(to("blocking", max_output_tokens=3))).finish_reason == "length"


@real
async def test_missing_keys_and_features_are_reported(models: Any) -> None:
    with pytest.raises(ConfigError, match="llm keys set testing"):
        await replied(to("keyed"))
    with pytest.raises(ModelError, match="does not support tools") as caught:
        await replied(to("endless", tools=(LOOK,)))
    assert not caught.value.retryable


@real
async def test_keys_are_passed_on_and_never_shown(models: Any) -> None:
    assert (await replied(to("keyed"), key="private-key-1")).text == "key of 13"
    with pytest.raises(ModelError) as caught:
        await replied(to("keyed", "FAIL"), key="private-key-1")
    assert "private" not in str(caught.value)
    assert (caught.value.status, caught.value.retryable) == (429, True)
    assert caught.value.retry_after_seconds == 2.5
    assert caught.value.__cause__ is None


@real
async def test_unknown_models_are_reported_at_once(models: Any) -> None:
    with pytest.raises(ConfigError, match="llm models"):
        LLMClient.for_model("no-such-model")
    assert LLMClient.for_model("short").info("short") == ModelInfo()
    info = ModelInfo(window_tokens=5)
    assert LLMClient(infos={"short": info}).info("short") is info
    assert (await replied(to("short"))).model == "blocking-2031"


@real
async def test_a_hung_model_times_out(models: Any) -> None:
    client = LLMClient(threads=1)
    for _ in range(2):
        with pytest.raises(ModelError, match=r"within 0\.1 s") as caught:
            await client.complete(to("blocking", "HANG"), timeout_seconds=0.1)
    assert "1 earlier calls" in str(caught.value)
    assert len(models.prompts) == 1
    models.release.set()
    assert (await client.complete(to("blocking"), timeout_seconds=10)).text == "echo: hi"
    await client.close()


@real
async def test_cancelling_an_async_model_closes_it(models: Any) -> None:
    task = asyncio.create_task(replied(to("waiting", "HANG")))
    while not models.prompts and not task.done():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert models.closed.is_set()
    assert threading.active_count() < 50
