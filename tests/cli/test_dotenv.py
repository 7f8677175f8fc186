"""`.env`: a small parser, and a file that came with a clone never gets the user's keys."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.cli._models import choose
from rlm.cli.dotenv import LARGEST_BYTES, Settings, merge, parse, settings
from rlm.settings.configuration import Configuration, Defaults
from rlm.settings.keys import KeyStore
from rlm.wiring.registry import PROVIDERS
from tests.cli.running import one_clear_line, rlm
from tests.cli.scripts import submits
from tests.endpoint import endpoint

KEYS = sorted({name for each in PROVIDERS.values() for name in each.key_variables})
ADDRESSES = sorted({name for each in PROVIDERS.values() for name in each.base_url_variables})


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("  export A = b  ", "b"),
        ("A=b c # said", "b c"),
        ("A=b#c", "b#c"),
        ("A=", ""),
        ("A=# nothing", ""),
        ("A='b # c' # said", "b # c"),
        ("A='$HOME `id` \\n'", "$HOME `id` \\n"),
        ('A="b\\n\\"c\\" $HOME"', 'b\n"c" $HOME'),
        ("A=$(id) ${HOME}", "$(id) ${HOME}"),
        ("A=b=c", "b=c"),
        ('A="open', '"open'),
    ],
)
def test_dotenv_lines_are_parsed(line: str, value: str) -> None:
    assert parse(f"# first\n\n{line}\r\nnonsense\n=x\n1A=x\n") == {"A": value}


@given(st.text())
def test_any_text_yields_only_valid_variable_names(text: str) -> None:
    for name in parse(text):
        assert name.isascii()
        assert name.isidentifier()


values = st.sampled_from(["", "x"])


@given(
    st.dictionaries(st.sampled_from([*KEYS, *ADDRESSES]), values),
    st.dictionaries(st.sampled_from([*KEYS, *ADDRESSES, "PATH", "HTTPS_PROXY"]), values),
)
def test_an_address_from_the_dotenv_gets_only_keys_from_the_dotenv(
    environ: dict[str, str], found: dict[str, str]
) -> None:
    environ = {name: value and "real" for name, value in environ.items()}
    found = {name: value and "file" for name, value in found.items()}
    merged = merge(environ, found, ".env").variables
    for provider in PROVIDERS.values():
        address = first(merged, provider.base_url_variables)
        if address == "file":
            assert first(merged, provider.key_variables) == "file"
    assert {name: merged[name] for name, value in environ.items() if value} == {
        name: value for name, value in environ.items() if value
    }
    assert "HTTPS_PROXY" not in merged
    assert "PATH" not in merged


@pytest.mark.parametrize(
    ("provider", "stored", "from_file"),
    [
        (name, stored, from_file)
        for name, each in PROVIDERS.items()
        for stored, from_file in itertools.permutations(each.key_variables, 2)
        if each.base_url_variables
    ],
)
@pytest.mark.parametrize("is_empty", [False, True])
def test_an_empty_variable_does_not_hide_a_stored_key(
    provider: str, stored: str, from_file: str, is_empty: bool, tmp_path: Path
) -> None:
    """Otherwise a file that sets its own key in the other variable would get the stored key."""
    KeyStore(tmp_path / "config").set(stored, "stored")
    known = PROVIDERS[provider]
    address = known.base_url_variables[0]
    (tmp_path / ".env").write_text(f"{from_file}=file\n{address}=https://evil.example\n")
    empty = dict.fromkeys(known.key_variables if is_empty else (), "")
    found = settings({"RLM_CONFIG_DIR": str(tmp_path / "config"), **empty}, tmp_path).variables
    if found.get(address):
        assert first(found, known.key_variables) == "file"
    else:
        assert first(found, known.key_variables) == "stored"


def first(variables: dict[str, str], names: tuple[str, ...]) -> str | None:
    return next((variables[name] for name in names if variables.get(name)), None)


def test_known_variables_are_taken_and_others_ignored() -> None:
    found = {
        "RLM_MODEL": "groq/x",
        "GROQ_API_KEY": "k",
        "LLM_BASE_URL": "http://evil",
        "OLLAMA_HOST": "evil",
        "LD_PRELOAD": "evil.so",
    }
    merged = merge({"RLM_MODEL": "openai/gpt-5"}, found, ".env")
    assert merged.variables == {"RLM_MODEL": "openai/gpt-5", "GROQ_API_KEY": "k"}
    assert merged.taken == ("GROQ_API_KEY",)
    assert sorted(merged.ignored) == ["LLM_BASE_URL", "OLLAMA_HOST", "RLM_MODEL"]


@pytest.mark.parametrize(
    "model",
    ["command/sh evil", "./x.gguf", "gguf:x", "llm/x", "litellm/x", "plugins/x", "agent", "groq/"],
)
@pytest.mark.parametrize("name", ["RLM_MODEL", "RLM_SUB_MODEL"])
def test_a_dotenv_may_name_only_models_of_known_providers(name: str, model: str) -> None:
    found = merge({}, {name: model}, ".env")
    assert (found.variables, found.taken) == ({}, ())
    assert "only models of known providers" in found.ignored[name]


def test_a_users_alias_is_not_followed_for_a_dotenv() -> None:
    own = Defaults(Configuration(None, {"alias.agent": "command/sh"}))
    variables = {"RLM_SUB_MODEL": "agent"}
    assert choose(None, None, variables, defaults=own).sub_model == "command/sh"
    doubtful = choose(None, None, variables, defaults=own, doubtful=["RLM_SUB_MODEL"])
    assert doubtful.sub_model == "agent"
    named = choose(None, "agent", variables, defaults=own, doubtful=["RLM_SUB_MODEL"])
    assert named.sub_model == "command/sh"


def test_a_dotenv_cannot_change_where_runs_are_recorded() -> None:
    names = ("RLM_CONFIG_DIR", "RLM_JOURNAL", "RLM_STATE_DIR")
    found = merge({}, {**dict.fromkeys(names, "0"), "RLM_ANYTHING": "x"}, ".env")
    assert (found.variables, found.taken) == ({}, ())
    assert found.ignored == dict.fromkeys(names, "a .env can't set it; set it in the environment")


def test_taken_variables_are_reported() -> None:
    found = merge({}, {"RLM_MODEL": "groq/x", "GROQ_API_KEY": "k", "RLM_JOURNAL": "0"}, "here/.env")
    assert found.notices() == [
        "here/.env sets GROQ_API_KEY, RLM_MODEL.",
        "RLM_JOURNAL in here/.env is ignored: a .env can't set it; set it in the environment.",
    ]
    assert merge({}, {}, ".env").notices() == []


def test_unreadable_dotenv_files_are_reported(tmp_path: Path) -> None:
    assert settings({"A": "b"}, tmp_path) == Settings({"A": "b"})
    (tmp_path / ".env").write_bytes(b"\xef\xbb\xbfRLM_MODEL=groq/b \xff")
    assert settings({}, tmp_path).variables == {"RLM_MODEL": "groq/b \ufffd"}
    (tmp_path / ".env").write_bytes(b"#" * (LARGEST_BYTES + 1))
    assert "bytes" in settings({}, tmp_path).ignored[".env"]


def test_a_command_reads_the_dotenv(tmp_path: Path) -> None:
    with endpoint(submits("FINAL(4)")) as server:
        (tmp_path / ".env").write_text(
            f"RLM_MODEL=openai-compatible/m\nLLM_API_KEY='from-file'\nLLM_BASE_URL={server.url}\n"
        )
        done = rlm("ask", "?", "--json", cwd=tmp_path, OPENAI_API_KEY="real")
        assert server.keys == ["Bearer from-file"]
    assert json.loads(done.stdout)["model"] == "openai-compatible/m"
    told = f"{tmp_path / '.env'} sets LLM_API_KEY, LLM_BASE_URL, RLM_MODEL."
    assert told in done.stderr.splitlines()


def test_a_dotenv_in_a_cloned_repository_gets_no_real_key(tmp_path: Path) -> None:
    with endpoint(submits("FINAL(4)")) as server:
        (tmp_path / ".env").write_text(
            f"RLM_MODEL=openai-compatible/m\nLLM_API_KEY=\nLLM_BASE_URL={server.url}\n"
        )
        done = rlm("ask", "?", "--quiet", cwd=tmp_path, OPENAI_API_KEY="real")
        assert server.bodies == []
    assert "needs an address" in one_clear_line(done.stderr)


def test_importing_rlm_reads_no_dotenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("RLM_MODEL=a/b")
    monkeypatch.chdir(tmp_path)
    from rlm import RLM, ConfigError

    with pytest.raises(ConfigError):
        RLM()
