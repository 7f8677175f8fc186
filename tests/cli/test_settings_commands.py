"""`rlm config` and `rlm keys`: what they show, store and refuse; and what commands make of it."""

import json
import re
from pathlib import Path

import pytest

from rlm.cli import CONFIGURED, _configured, commands
from rlm.settings.configuration import set_value
from tests.cli.conftest import Run
from tests.cli.local_servers import CHAT, nowhere, playing
from tests.cli.running import rlm
from tests.cli.talking import Terminal
from tests.clients.programs import program

SECRET = "sk-secret-0123456789"


def test_settings_are_set_shown_and_removed(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "config" / "config.toml")
    assert run("config", "path")[:2] == (0, f"{path}\n")
    assert "rlm setup" in run("config", "list")[2]
    assert run("config", "get", "model")[0] == 1
    code, out, err = run("config", "set", "model", "ollama/m")
    assert (code, out, err) == (0, "", f"model is now ollama/m, in {path}.\n")
    assert run("config", "set", "limits.max_steps", "7")[0] == 0
    assert run("config", "get", "model")[:2] == (0, "ollama/m\n")
    listed = run("config", "list")[1].splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [
        *(["limits.max_steps", "7"], ["model", "ollama/m"]),
    ]
    shown = json.loads(run("config", "list", "--json")[1])
    assert shown["limits.max_steps"] == {"value": 7, "from": path}
    assert run("config", "unset", "model")[0] == 0
    assert run("config", "unset", "model")[0] == 1
    assert run("config", "get", "model")[0] == 1


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("modell", "a/b", "Did you mean 'model'?"),
        ("model", "opnai/gpt-5", "did you mean openai/gpt-5?"),
        ("model", "fsat", "does not name a provider"),
        ("model", "openai/", "does not name a model"),
        ("limits.max_steps", "-1", "write a whole number above 0"),
        ("limits.max_cost_usd", "nan", "write a number above 0"),
        ("alias.gpt-5", "groq/x", "already the name of a model"),
    ],
)
def test_a_wrong_setting_is_refused(run: Run, name: str, value: str, told: str) -> None:
    code, out, err = run("config", "set", name, value)
    assert (code, out) == (1, "")
    assert told in err
    assert run("config", "list")[1] == ""


def test_settings_are_defaults_of_options(run: Run, tmp_path: Path) -> None:
    path = program(tmp_path, "model", "read(); print('FINAL(4)')")
    run("config", "set", "alias.mine", f"command/{path}")
    run("config", "set", "limits.max_tokens", "1")
    code, _, err = run("ask", "?", "-m", "mine", "--json")
    assert code in (1, 3), err
    code, out, err = run("ask", "?", "-m", "mine", "--json", "--max-tokens", "100000")
    assert (code, json.loads(out)["answer"]) == (0, "4"), err
    assert json.loads(out)["model"] == f"command/{path}"
    run("config", "unset", "limits.max_tokens")
    run("config", "set", "journal", "off")
    before = len(list((tmp_path / "state").rglob("*.sqlite*")))
    assert run("ask", "?", "-m", "mine")[0] == 0
    assert len(list((tmp_path / "state").rglob("*.sqlite*"))) == before


def test_options_whose_defaults_are_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLM_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "model": "groq/x",
        "environment": "inprocess",
        "strategy": "direct",
        "limits.max_cost_usd": 1.0,
        "limits.max_seconds": 5.0,
        "limits.max_depth": 2,
    }.items():
        set_value({"RLM_CONFIG_DIR": str(tmp_path)}, name, value)
    limits = {"budget_usd": 1.0, "timeout": 5.0, "max_depth": 2}
    found = {name: _configured(commands.commands[name]) for name in CONFIGURED}
    assert found["ask"] == {"environment": "inprocess", "strategy": "direct", **limits}
    assert found["chat"] == found["serve"] == {"environment": "inprocess", **limits}
    rows = {"row_budget_usd": 1.0, "row_timeout": 5.0, "max_depth": 2}
    assert found["batch"] == {"environment": "inprocess", "strategy": "direct", **rows}


def test_a_broken_file_stops_commands_but_not_their_help(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text("= broken")
    code, _, err = run("ask", "?")
    assert code == 1
    assert "config.toml is not TOML" in err
    assert run("ask", "--help")[0] == run("config", "path")[0] == 0


def test_a_projects_settings_are_reported_and_never_run_a_program(run: Run, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    path = program(tmp_path, "evil", f"open({str(ran)!r}, 'w'); print('FINAL(4)')")
    (tmp_path / "rlm.toml").write_text(f'model = "command/{path}"\n')
    (tmp_path / ".env").write_text(f"RLM_MODEL=command/{path}\nRLM_SUB_MODEL=./evil.gguf\n")
    code, _, err = run("ask", "What?", stdin=b"text", **nowhere())
    assert not ran.exists(), err
    assert "ignoring model: " in err
    assert "not programs, files or plugins" in err
    assert "RLM_MODEL in " in err
    assert "RLM_SUB_MODEL in " in err
    assert "a .env may name only models of known providers" in err
    assert code in (0, 4), "the offline stand-in answered"
    (tmp_path / "rlm.toml").write_text('model = "offline/extractive"\n')
    (tmp_path / ".env").unlink()
    err = run("ask", "What?", stdin=b"text", **nowhere())[2]
    assert f"Using offline/extractive, because {tmp_path / 'rlm.toml'} names it." in err


# -- keys -----------------------------------------------------------------------------------------


def test_keys_are_read_from_standard_input_and_never_shown(run: Run, tmp_path: Path) -> None:
    seen = [run("keys", "set", "openai", stdin=f"{SECRET}\n".encode())]
    seen += [run("keys", "list"), run("keys", "list", "--json"), run("doctor", "--json")]
    seen += [run("models", "--json", **nowhere())]
    assert all(SECRET not in out + err for _, out, err in seen)
    assert seen[1][1].splitlines()[1].split("  ") == ["OPENAI_API_KEY", "key store (file)"]
    assert json.loads(seen[3][1])["model"]["why"] == "OPENAI_API_KEY is in the key store"
    both = json.loads(run("keys", "list", "--json", OPENAI_API_KEY="sk-env")[1])
    assert both == {"OPENAI_API_KEY": ["environment", "key store (file)"]}
    assert run("keys", "remove", "openai")[0] == 0
    code, _, err = run("keys", "remove", "openai")
    assert (code, "has no OPENAI_API_KEY" in err) == (1, True)
    assert run("keys", "path")[1] == f"{tmp_path / 'config' / 'keys.json'}\n"
    code, _, err = run("keys", "set", "opnai", stdin=b"x")
    assert (code, "Did you mean 'openai'?" in err) == (1, True)
    code, _, err = run("keys", "set", "openai", "--keyring", stdin=b"x")
    assert (code, "--file keeps the key" in err) == (1, True)
    code, _, err = run("keys", "set", "openai", stdin=b"")
    assert (code, "no key was given" in err) == (1, True)


def test_a_typed_key_is_hidden(tmp_path: Path) -> None:
    folder = str(tmp_path / "config")
    terminal = Terminal(cwd=tmp_path, RLM_CONFIG_DIR=folder, words=("keys", "set", "groq"))
    try:
        terminal.until("GROQ_API_KEY (not shown): ")
        terminal.type(f"{SECRET}\r")
        code, _ = terminal.end()
    finally:
        terminal.close()
    assert code == 0
    assert SECRET.encode() not in terminal.raw
    assert SECRET in (tmp_path / "config" / "keys.json").read_text()


def test_a_stored_key_never_goes_to_an_address_of_a_dotenv(run: Run, tmp_path: Path) -> None:
    """Two variables can hold Gemini's key: one set by the file must not unlock its address."""
    run("keys", "set", "GEMINI_API_KEY", stdin=SECRET.encode())
    (tmp_path / ".env").write_text(
        "GOOGLE_API_KEY=theirs\nGEMINI_BASE_URL=https://evil.example\nRLM_MODEL=gemini/x\n"
    )
    found = json.loads(run("doctor", "--json", **nowhere())[1])
    assert list(found["dotenv"]["ignored"]) == ["GEMINI_BASE_URL"]
    assert found["settings"]["stored_keys"] == ["GEMINI_API_KEY"]


def test_the_environment_and_a_dotenv_take_precedence_over_the_key_store(tmp_path: Path) -> None:
    from rlm.cli.dotenv import settings
    from rlm.settings.keys import KeyStore

    KeyStore(tmp_path / "config").set("GROQ_API_KEY", "stored")
    KeyStore(tmp_path / "config").set("XAI_API_KEY", "stored")
    KeyStore(tmp_path / "config").set("OPENAI_API_KEY", "stored")
    (tmp_path / ".env").write_text("GROQ_API_KEY=file\nOPENAI_API_KEY=file\n")
    environ = {"RLM_CONFIG_DIR": str(tmp_path / "config"), "OPENAI_API_KEY": "real"}
    found = settings(environ, tmp_path)
    names = ("OPENAI_API_KEY", "GROQ_API_KEY", "XAI_API_KEY")
    assert [found.variables[name] for name in names] == ["real", "file", "stored"]
    assert found.defaults.stored == {"XAI_API_KEY"}


# -- setup ----------------------------------------------------------------------------------------

CLAUDE = {
    "type": "result",
    "result": "4",
    "total_cost_usd": 0.001,
    "usage": {"input_tokens": 9, "output_tokens": 1},
}


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """A PATH with a `claude` that answers and an `llm` that does not."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder, "claude", f"read(); print({json.dumps(CLAUDE)!r})")
    program(folder, "llm", "print('not logged in', file=sys.stderr); sys.exit(2)")
    return {"PATH": f"{folder}:/usr/bin:/bin", **nowhere()}


def test_setup_tries_and_stores_the_first_model(
    run: Run, programs: dict[str, str], tmp_path: Path
) -> None:
    code, _, err = run("setup", "--yes", **programs)
    assert code == 0, err
    assert "it may cost a fraction of a cent" in err
    assert "It answered '4' (10 tokens, $0.0010)." in err
    assert 'Next: rlm ask "What is this about?" -f FILE' in err
    model = run("config", "get", "model")[1].strip()
    assert model == "command/claude -p --output-format json --tools '' --strict-mcp-config"
    code, out, err = run("ask", "What is 2 + 2?", "--json", "--strategy", "direct", **programs)
    assert (code, json.loads(out)["answer"], json.loads(out)["cost_usd"]) == (0, "4", 0.001)


def test_setup_does_not_store_a_model_that_fails(run: Run, programs: dict[str, str]) -> None:
    code, _, err = run("setup", "--yes", "--model", "command/llm", **programs)
    assert code == 1
    assert "command/llm did not answer a test question: " in err
    assert "not logged in" in err
    assert "The default model is unchanged." in err
    assert run("config", "get", "model")[0] == 1
    assert run("setup", "--yes", "--model", "command/llm", "--no-try", **programs)[0] == 0
    assert run("config", "get", "model")[1] == "command/llm\n"


def test_setup_without_any_model_says_what_to_do(run: Run) -> None:
    code, _, err = run("setup", "--yes", **nowhere(PATH="/nowhere"))
    assert code == 1
    assert "rlm keys set openai" in err
    assert "rlm models pull" in err
    code, _, err = run("setup", **nowhere(PATH="/nowhere"))
    assert code == 2
    assert "pass --yes" in err
    code, _, err = run("setup", "--yes", "--model", "opnai/gpt-5")
    assert (code, "did you mean openai/gpt-5?" in err) == (1, True)


def test_setup_in_a_terminal(tmp_path: Path, programs: dict[str, str]) -> None:
    folder = str(tmp_path / "config")
    variables = {**programs, "RLM_CONFIG_DIR": folder, "PATH": programs["PATH"]}
    terminal = Terminal(cwd=tmp_path, words=("setup", "--no-try"), **variables)
    try:
        shown = terminal.until(re.compile(r"store its key \[1\]: $"))
        assert re.search(r"1\s+command/claude -p .*\s+your plan\s+.*bin/claude", shown)
        terminal.type("99\r")
        terminal.until("the table has no number 99")
        terminal.type("openai\r")
        terminal.until("OPENAI_API_KEY (not shown): ")
        terminal.type(f"{SECRET}\r")
        code, said = terminal.end()
    finally:
        terminal.close()
    assert code == 0, said
    assert SECRET.encode() not in terminal.raw
    done = rlm("config", "get", "model", cwd=tmp_path, RLM_CONFIG_DIR=folder)
    assert done.stdout == "openai/gpt-5-mini\n"
    listed = rlm("keys", "list", "--json", cwd=tmp_path, RLM_CONFIG_DIR=folder)
    assert json.loads(listed.stdout) == {"OPENAI_API_KEY": ["key store (file)"]}


def test_a_variable_that_takes_precedence_is_named(run: Run, programs: dict[str, str]) -> None:
    err = run("setup", "--yes", "--no-try", RLM_MODEL="groq/x", **programs)[2]
    assert "RLM_MODEL is set to groq/x, which takes precedence" in err


def test_setting_what_the_project_overrides_says_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rlm.toml").write_text('model = "openai/gpt-5-mini"\n')
    code, _, err = run("config", "set", "model", "groq/x")
    assert code == 0
    assert "In this folder, openai/gpt-5-mini of " in err


LISTED = {"data": [{"id": "own-embedder"}, {"id": "own/model"}]}
PAGES = {"/v1/models": LISTED, "/v1/chat/completions": CHAT}


@pytest.mark.parametrize("key", [None, SECRET])
def test_setup_finds_the_models_of_a_compatible_server(run: Run, key: str | None) -> None:
    with playing(PAGES, key) as server:
        address = server.address if key else server.address.replace("://", "://me:hush@")
        known = {"OPENAI_BASE_URL": address, **({"OPENAI_API_KEY": key} if key else {})}
        code, _, err = run("setup", "--yes", **nowhere(PATH="/nowhere", **known))
    assert code == 0, err
    assert "It answered 'blue' (7 tokens, cost unknown)." in err
    assert f"Requests go to 127.0.0.1:{server.port} only while OPENAI_BASE_URL is set" in err
    assert run("config", "get", "model")[1] == "openai-compatible/own/model\n"
    assert "hush" not in err
    sent = {given for _, _, given in server.asked}
    assert sent == {f"Bearer {key}" if key else "Basic bWU6aHVzaA=="}


def test_setup_prefers_the_usual_model_of_a_compatible_server(run: Run) -> None:
    models = [{"id": "gpt-3.5-turbo"}, {"id": "gpt-5-mini"}]
    with playing({**PAGES, "/v1/models": {"data": models}}, SECRET) as server:
        known = {"OPENAI_BASE_URL": server.address, "OPENAI_API_KEY": SECRET}
        code, _, err = run("setup", "--yes", **nowhere(PATH="/nowhere", **known))
    assert code == 0, err
    assert run("config", "get", "model")[1] == "openai/gpt-5-mini\n"


def test_setup_reports_a_compatible_server_that_lists_no_models(run: Run) -> None:
    with playing({}) as server:
        known = nowhere(PATH="/nowhere", LLM_BASE_URL=server.address)
        code, _, err = run("setup", "--yes", **known)
    assert code == 1
    told = f"LLM_BASE_URL is set to {server.address}, which lists no models"
    assert told in err
    assert "--model openai-compatible/MODEL" in err
    assert "OPENAI_BASE_URL to the address" in err


def test_an_address_given_as_a_model_is_explained(run: Run) -> None:
    code, _, err = run("setup", "--yes", "--model", "https://me:hush@llm.example.org/v1")
    assert code == 1
    assert "https://llm.example.org is an address: set OPENAI_BASE_URL to it" in err
    assert "hush" not in err
