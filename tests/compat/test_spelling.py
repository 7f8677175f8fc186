"""Positions, attributes, names, defaults and texts of the reference's spelling."""

from typing import Any

import pytest

from rlm import RLM, ConfigError, Limits, ScriptedClient
from rlm.errors import ModelError
from rlm.logger import RLMLogger
from rlm.testing.fake_server import FakeServer
from tests.compat.test_constructor import made, scripted
from tests.fakes import PlanEnvironment, cell

ATTRIBUTES: dict[str, Any] = {
    "backend": "vllm",
    "backend_kwargs": {"model_name": "m", "base_url": "http://127.0.0.1:9/v1"},
    "environment_type": "local",
    "environment_kwargs": {},
    "depth": 0,
    "max_depth": 2,
    "max_iterations": 7,
    "max_budget": 1.5,
    "max_timeout": 60.0,
    "max_tokens": 900,
    "max_errors": 3,
    "other_backends": None,
    "other_backend_kwargs": None,
    "persistent": True,
    "custom_tools": {"f": len},
    "custom_sub_tools": {"f": len},
    "compaction": True,
    "compaction_threshold_pct": 0.02,
    "max_concurrent_subcalls": 5,
    "orchestrator": False,
    "user_prologue": "A tip.",
    "system_prompt": "Be brief.",
    "on_subcall_start": print,
    "on_subcall_complete": None,
    "on_iteration_start": None,
    "on_iteration_complete": None,
    "logger": None,
}


def test_positions_and_attributes_are_those_of_the_reference() -> None:
    """All by position, in the reference's order; all to be read again."""
    reference: Any = RLM
    positions = (
        *("vllm", ATTRIBUTES["backend_kwargs"], "local", None, 0, 2, 7, 1.5, 60.0, 900, 3),
        *("Be brief.", None, None, None, False, True, {"f": len}, None, True, 0.02, 5),
        *(print, None, None, None, None, None, False, "A tip."),
    )
    one = reference(*positions)
    for name, value in ATTRIBUTES.items():
        assert getattr(one, name) == value, name
    assert one.verbose.enabled is False
    assert one.config.compaction_fraction == 0.02
    with pytest.raises(AttributeError):
        one.max_iterations = 3
    with pytest.raises(TypeError, match="at most 30 positional"):
        reference(*positions, "more")
    with pytest.raises(TypeError, match="multiple values for argument 'backend'"):
        reference("vllm", {"model_name": "m"}, backend="vllm")


def test_attributes_exist_in_our_own_spelling_too() -> None:
    one = RLM("ollama/llama3", limits=Limits(max_steps=4, max_tokens=10), variables={})
    assert (one.backend, one.backend_kwargs) == ("ollama", {"model_name": "llama3"})
    assert (one.max_iterations, one.max_tokens, one.max_errors) == (4, 10, 5)
    assert (one.persistent, one.depth, one.environment_type) == (False, 0, "local")
    assert "REPL" in one.system_prompt


@pytest.mark.parametrize(("given", "kept"), [(0.02, 0.02), (0, 0.001), (1.5, 1.0), (1, 1.0)])
def test_any_compaction_threshold_is_accepted(given: float, kept: float) -> None:
    config = made(compaction=True, compaction_threshold_pct=given).config
    assert (config.compaction, config.compaction_fraction) == (True, kept)


async def test_a_tiny_compaction_threshold_still_reaches_the_answer() -> None:
    looks = [cell(["print", n, "of context"]) for n in range(4)]
    rules = [("Write notes", "notes"), ("notes", cell(["final", "done"]))]
    one = scripted(*looks, rules=rules, compaction=True, compaction_threshold_pct=0.02)
    assert (await one.acompletion("c")).response == "done"


async def test_usage_has_reference_names_only_in_the_references_spelling() -> None:
    with FakeServer([cell(["final", 1])] * 2) as server:
        kwargs = {"model_name": "org/m", "base_url": server.openai_url}
        environment = PlanEnvironment()
        theirs = made(backend_kwargs=kwargs, environment=environment)
        ours = RLM(
            "vllm/org/m",
            environment=environment,
            client_options={"vllm/org/m": {"base_url": server.openai_url}},
        )
        for one, name in ((theirs, "org/m"), (ours, "vllm/org/m")):
            done = await one.acompletion("c")
            assert list(done.usage_summary.model_usage_summaries) == [name]
            assert list(done.to_dict()["usage_summary"]["model_usage_summaries"]) == [name]
            assert done.root_model == "org/m"


@pytest.mark.parametrize(
    ("orders", "texts"),
    [
        (["batch", 2], ["ok", "Error: llm() call failed - {}"]),
        (["llm", 1], ["Error: {}"]),
        (["rlm", 1], ["Error: Child RLM completion failed - {}"]),
    ],
)
async def test_a_failed_call_has_the_references_text(orders: list[Any], texts: list[str]) -> None:
    refused: dict[str, Any] = {"status": 400, "error": "no luck"}
    answers = ["ok", refused] if len(texts) == 2 else [refused]
    with FakeServer([cell(orders), *answers, cell(["final", 1])]) as server:
        kwargs = {"model_name": "m", "base_url": server.openai_url}
        one = made(backend_kwargs=kwargs, environment=PlanEnvironment(), max_depth=2)
        done = await one.acompletion("c")
        assert done.response == "1"
        last = server.requests[-1].asked
        assert last is not None
    for text in texts:
        assert text.partition("{")[0] in last.text
    assert "no luck" in last.text
    assert "call failed:" not in last.text


async def test_a_failed_call_of_ours_keeps_its_text() -> None:
    client = ScriptedClient([cell(["batch", 1]), ModelError("no luck"), cell(["final", 1])])
    await RLM(client, environment=PlanEnvironment()).acompletion("c")
    assert "[call failed: " in str(client.requests[-1].messages[-1].content)


async def test_a_child_run_uses_its_parents_model_and_calls_use_the_other() -> None:
    """As in the reference: `other_backends` answers plain calls."""
    script = [cell(["rlm", 1], ["llm", 1]), "FINAL(child)", "a reply", "FINAL(done)"]
    with FakeServer(script) as server:
        url = {"base_url": server.openai_url}
        one = made(
            backend_kwargs={"model_name": "big", **url},
            other_backends=["vllm"],
            other_backend_kwargs=[{"model_name": "small", **url}],
            environment=PlanEnvironment(),
            max_depth=2,
        )
        await one.acompletion("c")
        models = [each.asked.model for each in server.requests if each.asked]
    assert models == ["big", "big", "small", "big"]


@pytest.mark.parametrize(
    ("variables", "model"),
    [
        ({"RLM_MODEL": "ollama/llama3", "OPENAI_API_KEY": "k"}, "ollama/llama3"),
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic/claude-sonnet-5-5"),
        ({"GROQ_API_KEY": "k", "OPENAI_API_KEY": "k"}, "openai/gpt-5-mini"),
    ],
)
def test_without_a_model_the_configured_or_first_available_one_is_used(
    variables: dict[str, str], model: str
) -> None:
    assert RLM(variables=variables).config.model == model
    assert RLM(logger=RLMLogger(), variables=variables).config.model == model
    assert RLM(max_iterations=3, variables=variables).config.model == model


def test_without_any_model_one_error_says_what_to_set() -> None:
    with pytest.raises(ConfigError) as error:
        RLM(variables={})
    for words in ("RLM('provider/model')", "RLM_MODEL", "OPENAI_API_KEY"):
        assert words in str(error.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("max_cost_usd", r"limits=Limits\(max_cost_usd=...\)$"),
        ("modle", "'modle'; did you mean 'model'[?]$"),
    ],
)
def test_an_unknown_keyword_says_where_a_limit_belongs(name: str, told: str) -> None:
    options: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError, match=told):
        RLM("offline/extractive", **options)
