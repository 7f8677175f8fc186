"""The reference engine's spelling: every keyword does what it says, or answers with one error."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rlm
from rlm import RLM, ConfigError, Limits, ScriptedClient
from rlm.clients.compatible import OpenAICompatClient
from rlm.compat.spelling import NO_LIMIT
from rlm.errors import (
    BudgetExceededError,
    CancellationError,
    ErrorThresholdExceededError,
    TimeoutExceededError,
    TokenLimitExceededError,
)
from rlm.events import Event
from rlm.logger import RLMLogger
from rlm.messages import Reply, Usage
from rlm.prompts import nudges
from tests.fakes import PlanEnvironment, cell

LOOK = cell(["print", "something about context"])


def made(**keywords: Any) -> RLM:
    """An RLM in the reference's spelling, on a server that is never asked."""
    keywords.setdefault("backend", "vllm")
    keywords.setdefault("backend_kwargs", {"model_name": "m", "base_url": "http://127.0.0.1:9/v1"})
    return RLM(**keywords)


def scripted(*script: Any, **keywords: Any) -> RLM:
    keywords.setdefault("environment", PlanEnvironment())
    return RLM(ScriptedClient(script, keywords.pop("rules", ())), **keywords)


def test_backend_and_model_name_choose_the_model() -> None:
    one = made(backend="openai", backend_kwargs={"model_name": "gpt-5-nano", "api_key": "k"})
    assert one.config.model == one.config.sub_model == "openai/gpt-5-nano"
    with pytest.raises(ConfigError, match="model_name"):
        made(backend="openai", backend_kwargs={})
    with pytest.raises(ConfigError, match="has no option 'colour'"):
        made(backend_kwargs={"model_name": "m", "colour": "red"})


def test_a_missing_key_is_reported_by_the_first_completion() -> None:
    """Programs make objects in their tests, and inspect them, without any key."""
    named = {"model_name": "gpt-5-nano"}
    one = made(backend="openai", backend_kwargs=named, environment=PlanEnvironment())
    assert one.backend_kwargs == named
    with pytest.raises(ConfigError, match="openai/gpt-5-nano needs a key: set OPENAI_API_KEY"):
        one.completion("c")
    with pytest.raises(ConfigError, match="has no option 'colour'"):
        made(backend="openai", backend_kwargs={**named, "colour": "red"})


@pytest.mark.parametrize(
    ("backend", "model", "client", "host"),
    [
        ("openai", "gpt-5-nano", "OpenAICompatClient", "api.openai.com"),
        ("openai", "gpt-5-pro", "ResponsesClient", "api.openai.com"),
        ("portkey", "@openai/gpt-5-mini", "OpenAICompatClient", "api.portkey.ai"),
        ("openrouter", "openai/gpt-5-mini", "OpenAICompatClient", "openrouter.ai"),
        ("vercel", "openai/gpt-5-mini", "OpenAICompatClient", "ai-gateway.vercel.sh"),
        ("vllm", "Qwen/Qwen3-8B", "OpenAICompatClient", "localhost:8000"),
        ("groq", "llama-3.3-70b-versatile", "OpenAICompatClient", "api.groq.com"),
        ("anthropic", "claude-sonnet-4-5", "AnthropicClient", "api.anthropic.com"),
        ("gemini", "gemini-2.5-flash", "GeminiClient", "generativelanguage.googleapis.com"),
    ],
)
def test_each_backend_of_the_reference_has_a_client(
    backend: str, model: str, client: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_BASE_URL")
    one = made(backend=backend, backend_kwargs={"model_name": model, "api_key": "k"})
    route = one.runner.resources.routes[f"{backend}/{model}"]
    assert (repr(route.client), route.wire_name) == (f"{client}('{host}')", model)


def test_the_reference_backend_azure_openai_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"model_name": "our-gpt", "api_key": "k"}
    with pytest.raises(ConfigError, match="AZURE_OPENAI_ENDPOINT"):
        made(backend="azure_openai", backend_kwargs=options)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://ours.openai.azure.com/")
    addresses = []
    for version in ({}, {"api_version": "2024-10-21"}):
        one = made(backend="azure_openai", backend_kwargs={**options, **version})
        client = one.runner.resources.routes["azure/our-gpt"].client
        assert isinstance(client, OpenAICompatClient)
        addresses.append(client._endpoint.base_url)
    ours = "https://ours.openai.azure.com"
    assert addresses == [f"{ours}/openai/v1", ours]


@pytest.mark.parametrize("name", ["docker", "modal", "prime", "daytona", "e2b", "ipython", "agent"])
def test_every_environment_of_the_reference_exists(name: str) -> None:
    assert made(environment=name).runner.resources.environment.name == name


def test_environment_kwargs_are_checked() -> None:
    assert made(environment_kwargs={}).config.model == "vllm/m"
    with pytest.raises(ConfigError, match="has no option 'image'"):
        made(environment_kwargs={"image": "x"})


def test_limits_may_be_given_by_their_reference_names() -> None:
    limits = made(
        max_depth=2,
        max_iterations=7,
        max_budget=1.5,
        max_timeout=60,
        max_tokens=900,
        max_errors=3,
        max_concurrent_subcalls=4,
    ).config.limits
    assert (limits.max_depth, limits.max_steps, limits.max_cost_usd) == (2, 7, 1.5)
    assert (limits.max_seconds, limits.max_tokens, limits.max_errors) == (60, 900, 3)
    assert limits.max_concurrent_calls == 4


def test_defaults_are_those_of_the_reference() -> None:
    config = made().config
    assert config.limits.max_errors == NO_LIMIT
    assert (config.limits.max_steps, config.limits.max_depth) == (30, 1)
    assert config.limits.max_concurrent_calls == Limits().max_concurrent_calls
    assert config.compaction is False
    assert made(compaction=True, compaction_threshold_pct=0.5).config.compaction_fraction == 0.5


def test_keywords_that_only_have_another_name_are_mapped() -> None:
    config = made(
        custom_system_prompt="Be brief.",
        sampling_args={"temperature": 0},
        sub_sampling_args={"temperature": 1},
        user_prologue="A tip.",
        orchestrator=False,
    ).config
    assert (config.system_prompt, config.prologue) == ("Be brief.", "A tip.")
    assert (config.sampling, config.sub_sampling) == ({"temperature": 0}, {"temperature": 1})
    assert config.orchestrator is False


def test_other_backends_become_the_sub_model() -> None:
    url = {"base_url": "http://127.0.0.1:9/v1"}
    config = made(
        other_backends=["vllm", "vllm"],
        other_backend_kwargs=[{"model_name": "small", **url}, {"model_name": "tiny", **url}],
    ).config
    assert (config.model, config.sub_model) == ("vllm/m", "vllm/small")
    assert config.models == ("vllm/tiny",)
    with pytest.raises(ConfigError, match="same length"):
        made(other_backends=["vllm"], other_backend_kwargs=[])


def test_options_given_besides_the_references_keywords_are_used() -> None:
    assert made(compaction=True).config.compaction is True
    assert made(max_depth=None, max_iterations=None).config.limits.max_depth == 1
    url = {"base_url": "http://127.0.0.1:9/v1"}
    positional: Any = RLM
    assert positional("vllm", backend_kwargs={"model_name": "m", **url}).config.model == "vllm/m"
    sub = [{"model_name": "small", **url}]
    mixed = scripted(other_backends=["vllm"], other_backend_kwargs=sub)
    assert (mixed.config.model, mixed.config.sub_model) == ("ScriptedClient", "vllm/small")
    with pytest.raises(ConfigError, match="logger must be"):
        made(logger="x")


async def test_at_the_depth_limit_the_prompt_itself_is_sent() -> None:
    client = ScriptedClient(["hi"])
    reference: Any = RLM
    one = reference(client, environment=PlanEnvironment(), depth=1)
    assert (await one.acompletion("Say hi")).response == "hi"
    assert [m.content for m in client.requests[0].messages] == ["Say hi"]


def test_depth_is_subtracted_from_max_depth() -> None:
    assert made(depth=1, max_depth=3).config.limits.max_depth == 2
    assert made(depth=1, max_depth=1).config.strategy == "direct"


def test_an_ellipsis_stands_for_the_default_model() -> None:
    """As documents write it: `RLM(..., logger=logger)`."""
    variables = {"RLM_MODEL": "ollama/llama3"}
    dots: Any = ...
    assert RLM(dots, variables=variables).config.model == "ollama/llama3"
    assert made().config.model == "vllm/m"
    with pytest.raises(ConfigError, match="RLM_MODEL"):
        RLM(dots, variables={})


def test_an_unknown_keyword_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="max_iteratons"):
        made(max_iteratons=3)


async def test_a_completion_has_the_references_fields() -> None:
    one = scripted(cell(["llm", 2]), cell(["final", "42"]), rules=[("sub-LLM", "x")])
    done = await one.acompletion({"task": "count"}, root_prompt="How many?")
    assert (done.response, done.root_model, done.error) == ("42", "ScriptedClient", None)
    assert done.prompt == {"task": "count"}
    assert done.execution_time > 0
    usage = done.usage_summary
    assert usage.model_usage_summaries["ScriptedClient"].total_calls == 4
    assert usage.total_input_tokens == done.result.usage.total.input_tokens
    assert usage.total_output_tokens == done.result.usage.total.output_tokens
    assert usage.total_cost is None
    assert done.to_dict()["response"] == "42"
    assert set(done.to_dict()["usage_summary"]) == {"model_usage_summaries"}


async def test_the_named_errors_carry_the_partial_answer() -> None:
    usage = Usage(3_000, 200)
    rules = [("Stop here", Reply(text="best so far", usage=usage))]
    steps = [Reply(text=cell(["print", n, "of context"]), usage=usage) for n in range(20)]
    with pytest.raises(TokenLimitExceededError) as tokens:
        await scripted(*steps, rules=rules, max_tokens=40_000).acompletion("c")
    assert tokens.value.partial_answer == "best so far"
    assert tokens.value.token_limit == 40_000
    assert tokens.value.tokens_used is not None
    assert tokens.value.tokens_used <= 40_000
    prices = {"ScriptedClient": (1.0, 1.0)}
    with pytest.raises(BudgetExceededError) as money:
        await scripted(*steps, rules=rules, max_budget=0.04, prices=prices).acompletion("c")
    assert (money.value.partial_answer, money.value.budget) == ("best so far", 0.04)
    assert money.value.spent is not None
    assert money.value.spent <= 0.04
    with pytest.raises(TimeoutExceededError) as time:
        await scripted(cell(["sleep"]), rules=rules, max_timeout=1.0).acompletion("c")
    assert (time.value.partial_answer, time.value.timeout) == ("best so far", 1.0)
    failing = [cell(["print", n], ["fail"]) for n in range(5)]
    with pytest.raises(ErrorThresholdExceededError) as errors:
        await scripted(*failing, rules=rules, max_errors=2).acompletion("c")
    assert (errors.value.partial_answer, errors.value.threshold) == ("best so far", 2)


async def test_at_max_iterations_the_best_answer_is_returned() -> None:
    done = await scripted(LOOK, "It is 7.", max_iterations=1).acompletion("c")
    assert done.response == "It is 7."


async def test_a_stopped_completion_raises_with_its_partial_answer() -> None:
    one = scripted(LOOK, cell(["sleep"]))
    task = asyncio.create_task(one.acompletion("c"))
    while not one.runner.running or next(iter(one.runner.running.values())).scope.step < 2:
        await asyncio.sleep(0)
    one.stop()
    with pytest.raises(CancellationError) as stopped:
        await task
    assert stopped.value.partial_answer is None  # what a cell printed is no answer


async def test_callbacks_run_in_order_on_their_own_thread() -> None:
    fired: list[tuple[Any, ...]] = []
    threads: set[int] = set()

    def note(name: str) -> Any:
        def callback(*facts: Any) -> None:
            threads.add(threading.get_ident())
            fired.append((name, *(f for f in facts if not isinstance(f, float))))

        return callback

    one = scripted(
        cell(["rlm", 1]),
        cell(["final", "done"]),
        rules=[("The task is in the variable", cell(["final", "child"]))],
        max_depth=2,
        on_iteration_start=note("start"),
        on_iteration_complete=note("complete"),
        on_subcall_start=note("sub start"),
        on_subcall_complete=note("sub complete"),
    )
    await one.acompletion("c", root_prompt="What?")
    assert fired == [
        ("start", 0, 1),
        ("sub start", 1, "ScriptedClient", "piece 0"),
        ("start", 1, 1),
        ("complete", 1, 1),
        ("sub complete", 1, "ScriptedClient", None),
        ("complete", 0, 1),
        ("start", 0, 2),
        ("complete", 0, 2),
    ]
    assert threading.get_ident() not in threads


async def test_a_failing_callback_is_reported_and_does_not_end_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(depth: int, step: int) -> None:
        raise RuntimeError("callback is broken")

    assert (await scripted("FINAL(1)", on_iteration_start=broken).acompletion("c")).response == "1"
    assert "callback is broken" in caplog.text


async def test_a_logger_in_memory_fills_metadata() -> None:
    one = scripted(LOOK, cell(["final", "42"]), logger=RLMLogger())
    done = await one.acompletion("the context itself")
    assert done.metadata is not None
    first, second = done.metadata["iterations"]
    assert first["code_blocks"][0]["result"]["stdout"] == "something about context\n"
    assert (second["iteration"], second["final_answer"]) == (2, "42")
    assert done.metadata["run_metadata"]["model"] == "ScriptedClient"
    assert one.logger is not None
    assert one.logger.iteration_count == 2
    assert (await scripted("FINAL(1)").acompletion("c")).metadata is None


async def test_a_logger_on_disk_writes_one_file_per_run_without_the_context(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=str(tmp_path / "logs"))
    rules = [("The task is in the variable", cell(["final", "child \ud800"]))]
    script = [cell(["rlm", 1]), cell(["final", "a"]), "FINAL(b)"]
    one = scripted(*script, rules=rules, logger=logger, max_depth=2, preview_chars=0)
    secret = "zebra-7731"
    await one.aask("q", secret)
    await one.aask("q", secret)
    files = sorted((tmp_path / "logs").glob("rlm_*.jsonl"))
    assert len(files) == 2
    assert secret not in "".join(f.read_text("utf-8") for f in files)
    events = [msgspec.json.decode(line, type=Event) for line in files[0].read_bytes().splitlines()]
    assert {event.depth for event in events} == {0, 1}
    assert events[-1].run_id == events[0].run_id


async def test_verbose_in_our_spelling_prints_only_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await scripted("FINAL(1)", verbose=True).acompletion("c")
    out, err = capsys.readouterr()
    assert out == ""
    assert "step 1" in err


async def test_orchestrator_and_prologue_affect_the_prompt() -> None:
    client = ScriptedClient(["FINAL(1)", "FINAL(1)"])
    for orchestrator in (True, False):
        one = RLM(
            client,
            environment=PlanEnvironment(),
            orchestrator=orchestrator,
            prologue="Mind the tides.",
        )
        await one.acompletion("c")
    with_it, without = (str(r.messages[0].content) for r in client.requests)
    assert "## Decide in this order" in with_it
    assert "## Decide in this order" not in without
    assert "Mind the tides." in str(client.requests[0].messages[1].content)


def test_module_level_completion() -> None:
    client = ScriptedClient(["FINAL(one)", "FINAL(two)"])
    options: dict[str, Any] = {"environment": PlanEnvironment()}
    assert rlm.completion("c", client, **options).response == "one"
    done = asyncio.run(rlm.acompletion("c", client, root_prompt="How?", **options))
    assert done.response == "two"
    assert "Query: How?" in str(client.requests[1].messages[1].content)


async def test_persistent_keeps_variables_contexts_and_history() -> None:
    code = "```repl\n{}\n```"
    client = ScriptedClient(
        [
            code.format("seen = context.upper()\nFINAL(seen)"),
            code.format("FINAL([seen, context, context_0, context_1, history[0]['answer']])"),
        ]
    )
    one = RLM(client, persistent=True)
    try:
        assert (await one.acompletion("first", root_prompt="Shout.")).response == "FIRST"
        second = await one.acompletion(["second"])
        assert second.response == str(["FIRST", "first", "first", ["second"], "FIRST"])
    finally:
        await one.aclose()
    told = str(client.requests[1].messages[1].content)
    assert "The task is in the variable `context_1`" in told
    assert "`context_1`: a list of 1 item" in told
    assert "Earlier query: Shout." in told
    assert nudges.NO_ACTION not in told


async def test_several_completions_on_one_object_do_not_share_a_repl() -> None:
    code = "```repl\n{}\n```"
    client = ScriptedClient([code.format("x = 1\nFINAL(x)"), code.format("FINAL('x' in dir())")])
    one = RLM(client)
    assert [(await one.acompletion("c")).response for _ in range(2)] == ["1", "False"]
    await one.aclose()
