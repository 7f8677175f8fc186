"""Requests that fail, end at a limit or are cancelled, and their effect on others."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import MakeRuntime, client_of
from elizaos_plugin_rlm import RLMClient, RLMConfig
from models import ECHO, cell

pytest.importorskip("rlm.testing.fake_server", reason="needs recursivelm")
from rlm.testing.fake_server import Answer, Asked, FakeServer

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Start a server with a script, as the backend of everything."""
    running: list[FakeServer] = []

    def start(*rules: tuple[str, Any], **options: Any) -> FakeServer:
        server = FakeServer(rules=rules, **options).start()
        running.append(server)
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("ELIZA_RLM_BACKEND", "openai")
        return server

    yield start
    for server in running:
        server.stop()


async def test_a_failed_request_returns_an_error_text_and_does_not_raise(
    make_runtime: MakeRuntime, openai: Any
) -> None:
    openai(("", Answer(status=400, error="the model is asleep")))
    runtime = await make_runtime()
    text = await runtime.use_model("TEXT_LARGE", {"prompt": "p"})
    assert text.startswith("[RLM ERROR] ")
    assert "the model is asleep" in text
    pieces = runtime.use_model_stream("TEXT_LARGE_STREAM", {"prompt": "p"})
    assert "".join([piece async for piece in pieces]) == text


async def test_an_error_reveals_no_key(
    make_runtime: MakeRuntime, openai: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    openai(("", Answer(status=401, error="wrong key: sk-very-secret")))
    monkeypatch.delenv("OPENAI_API_KEY")
    runtime = await make_runtime({"OPENAI_API_KEY": "sk-very-secret"})
    text = await runtime.use_model("TEXT_LARGE", {"prompt": "p"})
    assert text.startswith("[RLM ERROR] ")
    assert "sk-very-secret" not in text


@pytest.mark.parametrize("params", [{}, {"prompt": ""}, {"messages": 7}, {"messages": [7]}])
async def test_a_request_without_a_prompt_is_an_error(
    make_runtime: MakeRuntime, openai: Any, params: dict[str, Any]
) -> None:
    server = openai(("", ECHO))
    runtime = await make_runtime()
    assert (await runtime.use_model("TEXT_LARGE", params)).startswith("[RLM ERROR] ")
    assert server.count == 0


async def test_after_the_last_step_the_best_answer_is_returned(
    make_runtime: MakeRuntime, openai: Any
) -> None:
    server = openai(("", cell("print('still reading')")))
    runtime = await make_runtime()
    text = await runtime.use_model("TEXT_LARGE", {"prompt": "p", "maxIterations": 2})
    assert not text.startswith("[RLM")
    assert server.count == 4, "two steps, a call for an answer, and one more because it was code"


async def test_a_budget_ends_a_request_before_it_is_exceeded(
    make_runtime: MakeRuntime, openai: Any
) -> None:
    server = openai(("", ECHO))
    runtime = await make_runtime({"ELIZA_RLM_MAX_COST_USD": "0.000001"})
    assert (await runtime.use_model("TEXT_LARGE", {"prompt": "p"})).startswith("[RLM ERROR] ")
    assert server.count == 0


async def test_an_unknown_environment_is_answered_by_the_stub(
    make_runtime: MakeRuntime, openai: Any
) -> None:
    openai(("", ECHO))
    runtime = await make_runtime({"ELIZA_RLM_ENV": "nowhere"})
    result = await RLMClient(runtime=runtime).generate({"prompt": "p"})
    assert result.text == "[RLM STUB] RLM backend not available"
    assert "nowhere" in str(result.error)


async def test_cancelling_a_request_raises_and_ends_the_run(
    make_runtime: MakeRuntime, openai: Any
) -> None:
    server = openai(("", Answer(reply=ECHO, delay_seconds=60)))
    runtime = await make_runtime()
    request = asyncio.create_task(runtime.use_model("TEXT_LARGE", {"prompt": "p"}))
    while not server.in_flight:
        await asyncio.sleep(0.01)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    kept = client_of(runtime).trajectories
    assert [each.stop_reason for each in kept] == ["cancelled"]


async def test_stopping_the_runtime_ends_requests_in_progress(
    make_runtime: MakeRuntime, openai: Any
) -> None:
    server = openai(("", Answer(reply=ECHO, delay_seconds=60)))
    runtime = await make_runtime()
    request = asyncio.create_task(runtime.use_model("TEXT_LARGE", {"prompt": "p"}))
    while not server.in_flight:
        await asyncio.sleep(0.01)
    await runtime.stop()
    assert (await request).startswith("[RLM ERROR] ")


async def test_a_long_cell_does_not_block_the_event_loop(
    make_runtime: MakeRuntime, openai: Any
) -> None:
    """The loop runs while the model's code is executing."""
    busy = "x = 0\nwhile llm_query('go on?') == 'yes': x += 1\nFINAL(x)"
    turns, seen = 0, list[int]()

    def go_on(_: Any) -> str:
        seen.append(turns)
        return "yes" if turns < seen[0] + 50 else "no"

    openai(("go on?", go_on), ("", cell(busy)))
    runtime = await make_runtime()
    request = asyncio.create_task(runtime.use_model("TEXT_LARGE", {"prompt": "p"}))
    while not request.done():
        await asyncio.sleep(0)
        turns += 1
    assert int(await request) == len(seen) - 1
    assert seen[-1] >= seen[0] + 50


async def test_a_temporary_server_failure_is_retried(openai: Any) -> None:
    server = openai(("", Answer(status=503, times=5, retry_after=0.0)), ("", ECHO))
    config = RLMConfig(backend="openai", max_retries=1, retry_seconds=0.0)
    result = await RLMClient(config).infer("p")
    assert result.text == "p"
    assert server.count == 6, "the engine's five tries of one request, and a new beginning"


async def test_an_option_the_model_rejects_is_omitted_from_then_on(
    make_runtime: MakeRuntime, openai: Any
) -> None:
    """OpenAI's reasoning models refuse a temperature, which elizaOS always sets."""
    refusal = "Unsupported value: 'temperature' does not support 0.7 with this model."

    def picky(asked: Asked) -> Answer:
        bad = "temperature" in asked.body
        return Answer(status=400, error=refusal) if bad else Answer(reply=ECHO)

    server = openai(("", picky))
    runtime = await make_runtime()
    params = {"prompt": "p", "temperature": 0.7, "user": "u"}
    assert await runtime.use_model("TEXT_LARGE", params) == "p"
    assert server.count == 2
    assert await runtime.use_model("TEXT_LARGE", params) == "p"
    assert server.count == 3
    last = server.requests[-1].asked
    assert last.body["user"] == "u", "the rest is sent as before"
    assert await runtime.use_model("TEXT_LARGE", {**params, "model": "other"}) == "p"
    assert server.count == 5, "another model is asked for itself"


async def test_options_a_provider_lacks_are_omitted(make_runtime: MakeRuntime, openai: Any) -> None:
    server = openai(("", ECHO))
    runtime = await make_runtime({"ELIZA_RLM_BACKEND": "anthropic"})
    params = {"prompt": "p", "seed": 7, "frequencyPenalty": 0.5, "temperature": 0.5}
    assert await runtime.use_model("TEXT_LARGE", params) == "p"
    assert server.requests[-1].asked.body["temperature"] == 0.5


async def test_a_refusal_that_names_none_of_our_options_is_an_error_at_once(
    make_runtime: MakeRuntime, openai: Any
) -> None:
    server = openai(("", Answer(status=400, error="the temperature outside is low")))
    runtime = await make_runtime()
    assert (await runtime.use_model("TEXT_LARGE", {"prompt": "p"})).startswith("[RLM ERROR] ")
    assert server.count == 1


async def test_an_engine_that_disappears_between_attempts_is_answered_by_the_stub(
    openai: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    openai(("", Answer(status=503, retry_after=0.0)))
    client = RLMClient(RLMConfig(backend="openai", max_retries=1, retry_seconds=0.0))
    asked = client._asked

    async def asked_then_gone(*arguments: Any) -> Any:
        monkeypatch.delenv("OPENAI_API_KEY")
        return await asked(*arguments)

    monkeypatch.setattr(client, "_asked", asked_then_gone)
    assert (await client.infer("p")).text == "[RLM STUB] RLM backend not available"
