"""`rlm models`: which models can be used, which is used now and why; no key is ever shown."""

import json
from pathlib import Path

import pytest

from tests.cli.local_servers import listed, nowhere, ollama, playing
from tests.cli.running import CONTROLS, in_terminals, one_clear_line, rlm


def test_a_fresh_machine(tmp_path: Path) -> None:
    done = rlm("models", cwd=tmp_path, **nowhere())
    assert (done.returncode, done.stderr) == (0, "")
    assert "*  offline/extractive  128,000  free         standard  built in" in done.stdout
    assert "* used now   offline/extractive, because no model is configured" in done.stdout
    assert "openai (OPENAI_API_KEY), anthropic (ANTHROPIC_API_KEY)" in done.stdout
    assert "no server    lmstudio, llamacpp, ollama, vllm" in done.stdout
    assert "table        genai-prices " in done.stdout


def test_keys_and_servers(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENROUTER_API_KEY=sk-file\n")
    local = {"/v1/models": listed("Qwen/Qwen3-8B", max_model_len=40_960)}
    with playing(local) as server:
        keys = {"GROQ_API_KEY": "sk-one", "OPENAI_API_KEY": "sk-two", "RLM_SUB_MODEL": "groq/x"}
        variables = nowhere(VLLM_BASE_URL=server.address, **keys)
        done = rlm("models", "--json", cwd=tmp_path, **variables)
        shown = rlm("models", cwd=tmp_path, **variables)
    assert "sk-" not in done.stdout + shown.stdout
    found = json.loads(done.stdout)
    assert found["used"]["default"] == "openai/gpt-5-mini"
    assert found["used"]["why"] == "OPENAI_API_KEY is set"
    assert found["used"]["sub_model"] == "groq/x"
    rows = {row["model"]: row for row in found["models"]}
    assert list(rows) == [
        "groq/x",
        "openai/gpt-5-mini",
        "groq/llama-3.3-70b-versatile",
        "openrouter/openai/gpt-5-mini",
        "vllm/Qwen/Qwen3-8B",
        "offline/extractive",
    ]
    assert [name for name, row in rows.items() if row["used"]] == ["openai/gpt-5-mini"]
    assert rows["openai/gpt-5-mini"]["price"] == {
        "input": 0.25,
        "output": 2.0,
        "cached": 0.025,
        "cache_write": None,
        "above": None,
    }
    assert rows["openai/gpt-5-mini"]["from"] == "OPENAI_API_KEY"
    assert rows["vllm/Qwen/Qwen3-8B"]["window_tokens"] == 40_960
    assert rows["vllm/Qwen/Qwen3-8B"]["price"] is None
    assert rows["vllm/Qwen/Qwen3-8B"]["profile"] == "small"
    assert rows["groq/x"]["window_tokens"] is None
    assert found["keys"]["OPENROUTER_API_KEY"] is True
    assert found["adapters"].keys() == {"gguf", "litellm", "llm"}
    assert any("Keys for openai, groq, openrouter are set" in text for text in found["advice"])
    assert f"127.0.0.1:{server.port}" in shown.stdout


def test_the_default_model_is_marked(tmp_path: Path) -> None:
    with playing(ollama("qwen3:8b", loaded=4_096)) as server:
        variables = nowhere(OLLAMA_HOST=f"127.0.0.1:{server.port}")
        done = rlm("models", cwd=tmp_path, **variables)
    assert "*  ollama/qwen3:8b       4,096  free         small     127.0.0.1:" in done.stdout
    assert "because no model is configured and ollama answers at http://127.0.0.1" in done.stdout
    assert "ollama runs qwen3:8b with a window of 4,096 tokens" in done.stdout


@pytest.mark.parametrize("model", ["nobody/x", "nonsense", "gguf:/nowhere.gguf"])
def test_an_unusable_model_is_still_listed(model: str, tmp_path: Path) -> None:
    found = json.loads(rlm("models", "--json", cwd=tmp_path, RLM_MODEL=model, **nowhere()).stdout)
    assert found["used"]["default"] == model
    assert found["used"]["problem"]
    assert found["models"][0]["model"] == model


def test_models_can_be_searched(tmp_path: Path) -> None:
    done = rlm("models", "gpt-4.1", cwd=tmp_path)
    assert "openai/gpt-4.1                        1,047,576  2, 8" in done.stdout
    assert one_clear_line(done.stderr).startswith("From genai-prices ")
    found = json.loads(rlm("models", "openai/gpt-4.1*", "--json").stdout)
    assert found["models"][0]["model"] == "openai/gpt-4.1"
    found = json.loads(rlm("models", "gemini/gemini-2.5-pro", "--json").stdout)
    assert found["models"][0]["window_tokens"] == 1_048_576
    assert found["models"][0]["price"]["above"]["tokens"] == 200_000
    assert found["table"]["licence"] == "MIT"


def test_a_search_with_too_many_or_no_results() -> None:
    done = rlm("models", "gpt")
    assert len(done.stdout.splitlines()) == 41  # a head and 40 rows
    assert "more; a longer pattern finds fewer" in done.stderr
    done = rlm("models", "no-such-model\x1b[31m")
    assert done.returncode == 1
    assert "no known model matches" in one_clear_line(done.stderr)
    assert "\x1b" not in done.stderr


def test_model_names_of_a_server_are_escaped(tmp_path: Path) -> None:
    with playing({"/v1/models": listed("evil\x1b[31m\nname\x07")}) as server:
        variables = nowhere(LLAMACPP_BASE_URL=server.address)
        seen = in_terminals("models", stdin="", **variables)
        listing = rlm("models", cwd=tmp_path, **variables)
    assert seen.code == 0
    assert CONTROLS.search(seen.stdout.replace(b"\r\n", b"\n")) is None
    assert "\x1b" not in listing.stdout


def test_long_facts_are_wrapped_in_a_terminal() -> None:
    seen = in_terminals("models", stdin="", **nowhere()).stdout.decode()
    lines = seen.replace("\r\n", "\n").splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.startswith(" " * 13) and line.strip() for line in lines)


def test_a_long_name_takes_its_own_line_in_a_terminal(tmp_path: Path) -> None:
    long = "hf.co/somebody/" + "a-very-long-name-" * 5 + "8b"
    with playing({"/v1/models": listed("short", long)}) as server:
        variables = nowhere(VLLM_BASE_URL=server.address)
        seen = in_terminals("models", stdin="", **variables).stdout.decode()
        piped = rlm("models", cwd=tmp_path, **variables).stdout
    lines = [line.rstrip() for line in seen.splitlines()]
    at = lines.index(f"   vllm/{long}")
    assert lines[at + 1].split() == ["unknown", "unknown", "small", f"127.0.0.1:{server.port}"]
    assert any(line.split()[:1] == [f"vllm/{long}"] for line in piped.splitlines())
    assert not any(line.strip() == f"vllm/{long}" for line in piped.splitlines())
