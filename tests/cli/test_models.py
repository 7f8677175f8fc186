"""Which model a command uses: from an option, a variable, a key, a local server, or offline."""

import json
from pathlib import Path

import pytest

from rlm.cli._models import Server, choose, windows_of
from rlm.wiring.registry import PROVIDERS, default_model, make_client
from tests.cli.local_servers import CHAT, nowhere, ollama, playing
from tests.cli.running import QUESTION, TEXT, rlm

ALL_KEYS = {name: "k" for each in PROVIDERS.values() for name in each.key_variables}
HERE = Server("ollama", "http://localhost:11434/v1", True, ("qwen3:8b",), {"qwen3:8b": 4_096})


@pytest.mark.parametrize(
    ("model", "variables", "chosen", "why"),
    [
        ("groq/x", {"RLM_MODEL": "openai/y"}, "groq/x", "it was requested"),
        (None, {"RLM_MODEL": "openai/y", "GROQ_API_KEY": "k"}, "openai/y", "RLM_MODEL names it"),
        (None, ALL_KEYS, "openai/gpt-5-mini", "OPENAI_API_KEY is set"),
        (
            None,
            {"GROQ_API_KEY": "k", "OPENROUTER_API_KEY": "k", "OPENAI_API_KEY": ""},
            "groq/llama-3.3-70b-versatile",
            "GROQ_API_KEY is set",
        ),
        (
            None,
            {"AI_GATEWAY_API_KEY": "k"},
            "vercel/openai/gpt-5-mini",
            "AI_GATEWAY_API_KEY is set",
        ),
        (None, {"OPENROUTER_API_KEY": "k"}, "openrouter/openai/gpt-5-mini", None),
        (None, {"LLM_API_KEY": "k"}, "offline/extractive", "no model is configured"),
        (None, {}, "offline/extractive", "no model is configured"),
    ],
)
def test_the_model_and_the_reason_for_it(
    model: str | None, variables: dict[str, str], chosen: str, why: str | None
) -> None:
    choice = choose(model, None, variables)
    assert choice.model == chosen
    assert why in {None, choice.why}
    assert choice.fallback is (chosen == "offline/extractive")


def test_a_local_server_is_used_only_if_nothing_is_configured() -> None:
    found = choose(None, None, {}, lambda: [HERE])
    assert (found.model, found.fallback) == ("ollama/qwen3:8b", False)
    assert found.notice == (
        "No model is configured: using ollama/qwen3:8b at http://localhost:11434/v1."
    )

    def nobody_looks() -> list[Server]:
        raise AssertionError("nobody has to look")

    assert choose("a/b", None, {}, nobody_looks).notice is None
    assert choose(None, None, {"RLM_MODEL": "a/b"}, nobody_looks).notice is None
    assert choose(None, None, {"GROQ_API_KEY": "k"}, nobody_looks).notice is None
    assert "offline/extractive finds passages" in (choose(None, None, {}, list).notice or "")


def test_windows_are_read_from_the_servers() -> None:
    found = choose(None, "groq/x", {}, lambda: [HERE])
    assert windows_of(found, {}, ()) == {"ollama/qwen3:8b": 4_096}
    with playing(ollama("m", loaded=8_192)) as server:
        variables = nowhere(OLLAMA_HOST=f"127.0.0.1:{server.port}")
        asked = choose("openai/gpt-5", "ollama/m", variables)
        assert windows_of(asked, variables, ()) == {"ollama/m": 8_192}
    assert windows_of(choose("openai/gpt-5", "nonsense", {}), {}, ()) == {}


def test_the_model_for_calls() -> None:
    variables = {"RLM_SUB_MODEL": "groq/small"}
    assert choose("a/b", None, variables).sub_model == "groq/small"
    assert choose("a/b", "c/d", variables).names == ("a/b", "c/d")
    assert choose("a/b", None, {}).names == ("a/b",)


@pytest.mark.parametrize("name", [name for name, each in PROVIDERS.items() if each.default_model])
def test_every_default_model_is_usable_with_its_key(name: str) -> None:
    provider = PROVIDERS[name]
    variables = {provider.key_variables[0]: "k"}
    if provider.base_url is None:
        assert default_model(variables) is None, "its address is missing"
        variables[provider.base_url_variables[0]] = "https://here.example.com"
    sharing = [
        each for each in PROVIDERS if PROVIDERS[each].key_variables == provider.key_variables
    ]
    first = sharing[0]
    assert default_model(variables) == f"{first}/{PROVIDERS[first].default_model}"
    model = f"{name}/{provider.default_model}"
    assert make_client(model, variables)[1] == provider.default_model


# -- the whole way --------------------------------------------------------------------------------


def test_a_query_goes_to_a_local_server(tmp_path: Path) -> None:
    with playing(ollama("nomic-embed-text", "qwen3:8b")) as server:
        variables = nowhere(OLLAMA_HOST=f"127.0.0.1:{server.port}")
        done = rlm("ask", "What colour?", "--json", cwd=tmp_path, **variables)
    assert json.loads(done.stdout)["answer"] == "blue"
    assert json.loads(done.stdout)["model"] == "ollama/qwen3:8b"
    assert json.loads(done.stdout)["cost_usd"] == 0
    first, second = done.stderr.splitlines()[:2]
    assert first == f"No model is configured: using ollama/qwen3:8b at {server.address}."
    assert second == ("The window of ollama/qwen3:8b is unknown, and assumed to be 32,000 tokens.")


@pytest.mark.parametrize(
    "variable", ["OPENAI_BASE_URL", pytest.param("LLM_BASE_URL", marks=pytest.mark.heavy)]
)
def test_a_server_named_by_an_address_is_used_without_a_key(tmp_path: Path, variable: str) -> None:
    listed = {"data": [{"id": "m", "max_model_len": 40_000}]}
    pages = {"/v1/models": listed, "/v1/chat/completions": CHAT}
    with playing(pages) as named, playing(ollama("other")) as local:
        variables = {
            **nowhere(OLLAMA_HOST=f"127.0.0.1:{local.port}"),
            variable: named.address,
        }
        done = rlm("ask", "What colour?", "--json", cwd=tmp_path, **variables)
        advice = json.loads(rlm("doctor", "--json", cwd=tmp_path, **variables).stdout)["to_do"]
    assert json.loads(done.stdout)["model"] == "openai-compatible/m"
    first, second = done.stderr.splitlines()[:2]
    assert first == f"No model is configured: using openai-compatible/m at {named.address}."
    assert second == "The price of openai-compatible/m is unknown."
    assert not any(variable in each for each in advice)


def test_a_remote_servers_model_is_chosen_only_if_it_is_the_only_one() -> None:
    here, there = "http://127.0.0.1:8000/v1", "https://llm.example.org"
    several = ("text-embed", "a", "b")

    def chosen(address: str, models: tuple[str, ...]) -> str:
        server = Server("openai-compatible", address, True, models)
        return choose(None, None, {}, lambda: [server]).model

    assert chosen(here, several) == "openai-compatible/a"
    assert chosen(there, several) == "offline/extractive"
    assert chosen(there, several[:2]) == "openai-compatible/a"


def test_without_any_model_passages_are_found_and_marked_as_no_answer(tmp_path: Path) -> None:
    done = rlm("ask", QUESTION, "--json", stdin=TEXT, cwd=tmp_path, **nowhere())
    assert "4821" in json.loads(done.stdout)["answer"]
    assert json.loads(done.stdout)["model"] == "offline/extractive"
    assert json.loads(done.stdout)["stop_reason"] == "passages"
    assert done.stderr.splitlines()[0].startswith("run ")
    assert "in the table" not in done.stderr


@pytest.mark.heavy
def test_an_unknown_price_or_window_is_reported_unless_given(tmp_path: Path) -> None:
    with playing(ollama("m")) as server:
        ask = ("ask", "What colour?", "-m", "openai-compatible/m")
        told = rlm(*ask, cwd=tmp_path, LLM_BASE_URL=server.address)
        priced = rlm(*ask, "--price", "1,2", cwd=tmp_path, LLM_BASE_URL=server.address)
        quiet = rlm(*ask, "--quiet", cwd=tmp_path, LLM_BASE_URL=server.address)
    assert "and its price is unknown." in told.stderr
    assert "price" not in priced.stderr
    assert "The window of openai-compatible/m is unknown, and assumed to be" in priced.stderr
    assert (quiet.stdout, quiet.stderr) == ("blue\n", "")
