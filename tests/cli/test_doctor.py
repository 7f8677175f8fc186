"""`rlm doctor`: what it finds is true, and no key is ever shown."""

import json
import re
import sys
from pathlib import Path

import msgspec
import pytest

from rlm.cli import _checks
from rlm.cli._models import Server
from rlm.cli.doctor import _server, adapters_line, optional, to_do
from rlm.environments.local import LocalEnvironment
from tests.cli.local_servers import nowhere, ollama, playing
from tests.cli.running import rlm

ADDRESS_WITHOUT_KEY = "OPENAI_BASE_URL is set, but openai needs a key: set OPENAI_API_KEY"
AZURES_KEY = "AZURE_OPENAI_API_KEY"
COMPATIBLE = "RLM_MODEL=openai-compatible/MODEL; `rlm setup` lists its models"
OWN_SERVER = (
    "OPENAI_BASE_URL is set, so its server gets the requests for openai/gpt-5-mini: if that "
    "server has other models, run `rlm setup`, which lists them."
)
SECRET = "sk-secret-0123456789"
CHOOSE = "run `rlm config set model provider/model`, or set RLM_MODEL=provider/model to choose."


def test_doctor_on_a_fresh_machine(tmp_path: Path) -> None:
    done = rlm("doctor", cwd=tmp_path, **nowhere())
    assert (done.returncode, done.stderr) == (0, "")
    assert "environment  local (auto)\n             local: works; layers: " in done.stdout
    assert "             wasm: not needed here; " in done.stdout
    assert "             docker: not needed here; " in done.stdout
    assert "seccomp" in done.stdout
    assert "offline/extractive, because no model is configured" in done.stdout
    assert (
        "to do        For a real model, run `rlm setup`, set a key such as OPENAI_API_KEY"
        in done.stdout
    )


def test_what_keeps_ask_from_running_is_a_problem_here_too(tmp_path: Path) -> None:
    broken = "Expected '=' after a key in a key/value pair"
    (tmp_path / "rlm.toml").write_text("broken [")
    for asked in (("ask", "?", "-m", "offline/extractive"), ("doctor",)):
        done = rlm(*asked, cwd=tmp_path)
        assert done.returncode == 1
        assert broken in done.stdout + done.stderr
    assert "`rlm ask` would fail." in done.stdout
    (tmp_path / "rlm.toml").unlink()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text('environment = "e2b"')
    where = {"RLM_CONFIG_DIR": str(tmp_path / "config")}
    asked_for_cells = ("ask", "?", "-m", "offline/extractive", "--strategy", "rlm")
    assert rlm(*asked_for_cells, cwd=tmp_path, **where).returncode == 1
    done = rlm("doctor", "--json", cwd=tmp_path, **where)
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (1, False)
    assert "The setting environment is e2b" in json.loads(done.stdout)["to_do"][-1]


@pytest.mark.heavy
def test_keys_are_counted_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("GROQ_API_KEY=sk-file\nOLLAMA_HOST=evil\n")
    done = rlm("doctor", "--json", cwd=tmp_path, OPENAI_API_KEY="sk-real", RLM_SUB_MODEL="groq/x")
    assert "sk-" not in done.stdout
    found = json.loads(done.stdout)
    assert found["keys"]["OPENAI_API_KEY"] is True
    assert found["keys"]["GROQ_API_KEY"] is True
    assert found["keys"]["OPENROUTER_API_KEY"] is False
    assert found["dotenv"]["taken"] == ["GROQ_API_KEY"]
    assert list(found["dotenv"]["ignored"]) == ["OLLAMA_HOST"]
    assert found["model"]["default"] == "openai/gpt-5-mini"
    assert found["model"]["why"] == "OPENAI_API_KEY is set"
    assert found["model"]["sub_model"] == "groq/x"
    local = found["environments"]["local"]
    assert (local["works"], local["problem"]) == (True, None)
    assert "seccomp" in local["layers"]


def test_an_unusable_model_is_a_failure(tmp_path: Path) -> None:
    done = rlm("doctor", cwd=tmp_path, RLM_MODEL="groq/x")
    assert done.returncode == 1
    assert "set GROQ_API_KEY" in done.stdout
    assert "`rlm ask` would fail." in done.stdout
    assert "\x1b" not in done.stdout


def test_a_broken_environment_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = LocalEnvironment(python="/nowhere/python")
    monkeypatch.setattr(_checks, "make_environment", lambda name: nowhere)
    check = _checks.check_environment("local")
    assert not check.works
    assert check.problem is not None
    assert "/nowhere/python" in check.problem


def checked(
    monkeypatch: pytest.MonkeyPatch, working: str | None, **known: str
) -> _checks.AutoCheck:
    """What is found if one candidate works, and these problems are known beforehand."""

    def check(name: str) -> _checks.EnvironmentCheck:
        return _checks.EnvironmentCheck(name == working, None if name == working else f"no {name}")

    monkeypatch.setattr(_checks, "check_environment", check)
    monkeypatch.setattr(_checks, "known_problem", known.get)
    monkeypatch.setattr(_checks, "_answers", lambda _: False)
    return _checks.check_auto()


def test_candidates_after_the_first_working_one_are_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = checked(monkeypatch, "local", docker="no command")
    assert found.chosen == "local"
    assert {name: (each.works, each.problem) for name, each in found.candidates.items()} == {
        "local": (True, None),
        "wasm": (None, None),
        "docker": (False, "no command"),
    }
    found = checked(monkeypatch, "wasm")
    assert found.chosen == "wasm"
    assert found.candidates["local"].problem == "no local"


def test_without_any_working_environment_its_remedy_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = checked(monkeypatch, None)
    assert found.chosen is None
    plain = {
        "other_distributions": [],
        "environment": found.chosen,
        "environments": msgspec.to_builtins(found.candidates),
        "model": {"problem": None, "fallback": False},
        "extras": {},
    }
    (line,) = to_do(plain)
    assert line.startswith("Code cannot run: no environment here can isolate")
    assert line.endswith("(local: no local; wasm: no wasm; docker: no docker)")


def test_a_local_model_server_is_used_and_shown(tmp_path: Path) -> None:
    with playing(ollama("nomic-embed-text", "qwen3:8b", loaded=None)) as server:
        done = rlm("doctor", cwd=tmp_path, **nowhere(OLLAMA_HOST=f"127.0.0.1:{server.port}"))
    where = f"ollama answers at http://127.0.0.1:{server.port}/v1"
    assert done.returncode == 0
    assert f"server       {where}: nomic-embed-text, qwen3:8b" in done.stdout
    assert (
        f"model        ollama/qwen3:8b, because no model is configured and {where}" in done.stdout
    )
    assert "For a real model" not in done.stdout
    assert "server       vllm does not answer at http://127.0.0.1:" in done.stdout


def test_a_long_list_of_models_is_shortened() -> None:
    facts = {"provider": "p", "address": "a", "answers": True, "models": list("abcdefgh")}
    assert _server(facts) == "p answers at a: a, b, c, d, e and 3 more"
    assert _server({**facts, "models": []}) == "p answers at a: no model loaded"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, []),
        ({"OPENAI_API_KEY": "k"}, []),
        ({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "u"}, [OWN_SERVER]),
        ({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "u", "RLM_MODEL": "openai/x"}, []),
        ({"RLM_MODEL": "azure/d", "AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "u"}, []),
        (
            {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "u"},
            [
                (
                    "AZURE_OPENAI_API_KEY is set, but azure has no default model: "
                    "set RLM_MODEL=azure/MODEL."
                )
            ],
        ),
        (
            {"AZURE_OPENAI_API_KEY": "k"},
            [f"{AZURES_KEY} is set, but azure needs an address too: set AZURE_OPENAI_ENDPOINT."],
        ),
        (
            {"AZURE_OPENAI_ENDPOINT": "u"},
            ["AZURE_OPENAI_ENDPOINT is set, but azure needs a key: set AZURE_OPENAI_API_KEY."],
        ),
        (
            {"OPENAI_BASE_URL": "u"},
            [f"{ADDRESS_WITHOUT_KEY}, or, if the server needs no key, {COMPATIBLE}."],
        ),
        ({"OPENAI_BASE_URL": "u", "RLM_MODEL": "openai-compatible/m"}, []),
        (
            {"LLM_BASE_URL": "u"},
            [f"LLM_BASE_URL is set, but no model is: set {COMPATIBLE}."],
        ),
        (
            {"LLM_API_KEY": "k"},
            ["LLM_API_KEY is set, but openai-compatible needs an address too: set LLM_BASE_URL."],
        ),
        ({"LLM_BASE_URL": "u", "RLM_MODEL": "openai-compatible/m"}, []),
        (
            {"VLLM_API_KEY": "k"},
            ["VLLM_API_KEY is set, but vllm has no default model: set RLM_MODEL=vllm/MODEL."],
        ),
        (
            {"GROQ_API_KEY": "k", "GEMINI_API_KEY": "k"},
            [f"Keys for gemini, groq are set: the first of them is used; {CHOOSE}"],
        ),
        ({"GROQ_API_KEY": "k", "GEMINI_API_KEY": "k", "RLM_MODEL": "groq/x"}, []),
    ],
)
def test_incomplete_settings_are_reported(variables: dict[str, str], said: list[str]) -> None:
    assert _checks.check_settings(variables) == said


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"RLM_MODEL": "nobody/x"}, "there is no provider 'nobody'; providers: "),
        ({"RLM_MODEL": "x"}, "'x' does not name a provider"),
        ({"RLM_MODEL": "offline/extractive", "RLM_SUB_MODEL": "groq/x"}, "set GROQ_API_KEY"),
    ],
)
def test_unusable_models_are_reported(variables: dict[str, str], words: str) -> None:
    assert words in (_checks.check_model(variables).problem or "")


def test_a_missing_adapter_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checks, "check_adapters", lambda: dict.fromkeys(_checks.ADAPTERS, False))
    for model, extra in (("gguf:/a.gguf", "gguf"), ("litellm/a", "litellm"), ("llm/a", "llm")):
        problem = _checks.check_model({"RLM_MODEL": model}).problem
        assert problem == f"{model} is not installed: pip install 'recursivelm[{extra}]'"
    assert adapters_line({"gguf": False, "llm": True}) == (
        "gguf: pip install 'recursivelm[gguf]'; llm: installed"
    )


def test_adapters_are_detected_without_importing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_checks.ADAPTERS, "llm", ("antigravity", ""))
    monkeypatch.setitem(_checks.ADAPTERS, "gguf", ("no_such_module_at_all", ""))
    found = _checks.check_adapters()
    assert (found["llm"], found["gguf"]) == (True, False)
    assert "antigravity" not in sys.modules


def test_a_small_window_is_reported() -> None:
    small = Server("ollama", "a", True, ("m", "n"), {"m": 4_096, "n": 65_536})
    (said,) = _checks.check_windows([small, Server("vllm", "b", False)])
    assert "ollama runs m with a window of 4,096 tokens" in said
    assert "OLLAMA_CONTEXT_LENGTH=32768" in said


def test_every_extra_that_is_not_listed_elsewhere_is_among_the_extras() -> None:
    offered = {"corpus", "documents", "mcp", "otel", "places", "postgres", "server", "tables"}
    assert offered | {"typed"} == set(_checks.EXTRAS)


def test_advice_is_given_for_problems_but_not_for_missing_extras() -> None:
    found = {
        "other_distributions": [],
        "environment": "local",
        "environments": {"local": {"problem": None}},
        "model": {"problem": "broken", "fallback": True},
        "extras": {"documents": False, "typed": True},
    }
    first, second, third = to_do(found, ["advice"])
    assert first.startswith("broken (or choose another model")
    assert second.startswith("For a real model")
    assert third == "advice"
    (extra,) = optional(found)
    assert "recursivelm[documents]" in extra


def test_one_key_for_two_providers_is_ambiguous() -> None:
    assert _checks.check_settings({"AWS_BEARER_TOKEN_BEDROCK": "k"}) == []
    both = {"AWS_BEARER_TOKEN_BEDROCK": "k", "MISTRAL_API_KEY": "k"}
    (advice,) = _checks.check_settings(both)
    assert advice.startswith("Keys for mistral, bedrock are set: the first of them is used")


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, {}),
        (
            {"OPENAI_BASE_URL": "https://me:hush@llm.example.org:8443/hush/v1?key=hush"},
            {"OPENAI_BASE_URL": "llm.example.org:8443"},
        ),
        (
            {"GROQ_BASE_URL": "http://[::1]:9/v1", "OLLAMA_HOST": "box"},
            {"GROQ_BASE_URL": "[::1]:9"},
        ),
        ({"LLM_BASE_URL": "nonsense", "OPENAI_BASE_URL": "http://[hush"}, {"LLM_BASE_URL": ""}),
    ],
)
def test_addresses_are_shown_by_host_only(variables: dict[str, str], found: dict[str, str]) -> None:
    told = _checks.check_addresses(variables)
    assert "hush" not in json.dumps(told)
    assert {name: facts["host"] for name, facts in told.items()}.items() >= found.items()


@pytest.mark.heavy
def test_an_address_is_shown_without_its_password(tmp_path: Path) -> None:
    url = "http://me:hush@llm.example.org:9000/v1"
    for variables in (
        {"OPENAI_BASE_URL": url},
        {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": SECRET},
        {"VLLM_BASE_URL": url.replace("llm.example.org", "127.0.0.1")},
    ):
        done = rlm("doctor", cwd=tmp_path, **variables)
        assert re.search(
            r"^address +\w+_BASE_URL: requests to .* go to \S+:9000$", done.stdout, re.MULTILINE
        )
        as_json = rlm("doctor", "--json", cwd=tmp_path, **variables)
        assert "hush" not in done.stdout + done.stderr + as_json.stdout + as_json.stderr
