"""How cells may name a model: in full, or without its provider; nothing that is not allowed."""

from typing import Any

import pytest

from rlm import RLM, Limits, ScriptedClient
from rlm.calls.scope import Scope, Tree
from rlm.engine.bridge import Bridge
from rlm.errors import CallRefused
from rlm.limits import Budget

KEYS = dict.fromkeys(
    (
        *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GROQ_API_KEY"),
        *("OPENROUTER_API_KEY", "PORTKEY_API_KEY", "AZURE_OPENAI_API_KEY", "AI_GATEWAY_API_KEY"),
    ),
    "key",
) | {"AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com"}


def bridge_of(one: RLM) -> Bridge:
    nowhere: Any = None
    scope = Scope(run_id="run", budget=Budget(Limits()), recorders=(), tree=Tree(16))
    return Bridge(one.runner.resources.services().calls, one.config, scope, nowhere)


async def meant(one: RLM, name: str) -> str:
    return bridge_of(one)._model({"model": name})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("configured", "names"),
    [
        ("openai/gpt-4o", ("gpt-4o", "openai/gpt-4o")),
        ("gpt-4o", ("gpt-4o", "openai/gpt-4o")),
        ("openai/gpt-5-pro", ("gpt-5-pro",)),
        ("openai-responses/gpt-4o", ("gpt-4o",)),
        ("anthropic/claude-sonnet-4-5", ("claude-sonnet-4-5",)),
        ("google/gemini-2.5-flash", ("gemini-2.5-flash", "gemini/gemini-2.5-flash")),
        ("groq/openai/gpt-oss-120b", ("gpt-oss-120b", "openai/gpt-oss-120b")),
        ("openrouter/openai/gpt-4o", ("openai/gpt-4o", "gpt-4o")),
        ("portkey/@openai/gpt-4o", ("@openai/gpt-4o", "gpt-4o")),
        ("azure/my-deployment", ("my-deployment",)),
        ("vercel/openai/gpt-4o", ("openai/gpt-4o", "gpt-4o")),
        ("vllm/Qwen/Qwen3-8B", ("Qwen/Qwen3-8B", "Qwen3-8B")),
        ("ollama/llama3:8b", ("llama3:8b",)),
        ("offline/extractive", ("extractive",)),
    ],
)
async def test_every_model_can_be_named_without_its_provider(
    configured: str, names: tuple[str, ...]
) -> None:
    one = RLM("offline/extractive", models=[configured], variables=KEYS)
    for name in (configured, *names):
        assert await meant(one, name) == configured
    for name in (configured.partition("/")[0] + "/", "gpt", "4o", "/", "GPT-4O", "openai", "*"):
        with pytest.raises(CallRefused, match="is not allowed here; use one of"):
            await meant(one, name)
    await one.aclose()


async def test_an_ambiguous_model_name_is_refused_with_the_candidates() -> None:
    one = RLM(
        "offline/extractive",
        sub_model="openai/gpt-4o",
        models=["openrouter/openai/gpt-4o", "openai/gpt-5"],
        variables=KEYS,
    )
    assert await meant(one, "openai/gpt-4o") == "openai/gpt-4o"
    with pytest.raises(CallRefused) as caught:
        await meant(one, "gpt-4o")
    assert str(caught.value) == (
        "model 'gpt-4o' matches several models; use one of openai/gpt-4o, openrouter/openai/gpt-4o"
    )
    await one.aclose()


async def test_short_model_names_work_in_cells_of_a_run_and_its_children() -> None:
    cell = """```repl
out = [llm_query("a", model="gpt-4o"), llm_query("b", model="small")]
out += llm_query_batched(["c", "d"], model="gpt-4o")
out.append(rlm_query("sub task", context="x", model="small"))
out += rlm_query_batched(["sub task"], contexts=["y"], model="gpt-4o")
for name in ("gpt-9", "root"):
    try: out.append(llm_query("e", model=name))
    except CallFailed as error: out.append(str(error)[:31])
FINAL(out)
```"""
    root = ScriptedClient([cell, "root"])
    big = ScriptedClient(
        rules=[("Query: sub task", '```repl\nFINAL("big child")\n```'), ("", "big")]
    )
    small = ScriptedClient(
        rules=[("Query: sub task", '```repl\nFINAL("small child")\n```'), ("", "small")]
    )
    one = RLM(
        "a/root",
        sub_model="b/gpt-4o",
        models=["c/small"],
        clients={"a": root, "b": big, "c": small},
        limits=Limits(max_depth=2),
    )
    result = await one.aask("q", "c")
    await one.aclose()
    replies = ["big", "small", "big", "big", "small child", "big child"]
    assert result.answer == str([*replies, "model 'gpt-9' is not allowed he", "root"])


async def test_reference_backends_keep_the_model_names_given_to_them() -> None:
    reference: Any = RLM
    one = reference(
        backend="openai",
        backend_kwargs={"model_name": "gpt-4o", "api_key": "k"},
        other_backends=["anthropic", "vllm"],
        other_backend_kwargs=[
            {"model_name": "claude-sonnet-4-5", "api_key": "k"},
            {"model_name": "mine", "base_url": "http://localhost:1/v1"},
        ],
        variables={},
    )
    assert await meant(one, "gpt-4o") == "openai/gpt-4o"
    assert await meant(one, "claude-sonnet-4-5") == "anthropic/claude-sonnet-4-5"
    assert await meant(one, "mine") == "vllm/mine"
    await one.aclose()
