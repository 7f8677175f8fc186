"""`.env`: a small parser, and a file that came with a clone never gets the user's keys."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.cli.dotenv import LARGEST_BYTES, Settings, merge, parse, settings
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
def test_lines(line: str, value: str) -> None:
    assert parse(f"# first\n\n{line}\r\nnonsense\n=x\n1A=x\n") == {"A": value}


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    for name in parse(text):
        assert name.isascii()
        assert name.isidentifier()


values = st.sampled_from(["", "x"])


@given(
    st.dictionaries(st.sampled_from([*KEYS, *ADDRESSES]), values),
    st.dictionaries(st.sampled_from([*KEYS, *ADDRESSES, "PATH", "HTTPS_PROXY"]), values),
)
def test_an_address_from_the_file_gets_only_keys_from_the_file(
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


def first(variables: dict[str, str], names: tuple[str, ...]) -> str | None:
    return next((variables[name] for name in names if variables.get(name)), None)


def test_what_is_taken_and_what_is_not() -> None:
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


def test_files_that_can_not_be_read_are_reported(tmp_path: Path) -> None:
    assert settings({"A": "b"}, tmp_path) == Settings({"A": "b"})
    (tmp_path / ".env").write_bytes(b"\xef\xbb\xbfRLM_MODEL=a/b \xff")
    assert settings({}, tmp_path).variables == {"RLM_MODEL": "a/b \ufffd"}
    (tmp_path / ".env").write_bytes(b"#" * (LARGEST_BYTES + 1))
    assert "bytes" in settings({}, tmp_path).ignored[".env"]


def test_a_command_reads_it(tmp_path: Path) -> None:
    with endpoint(submits("FINAL(4)")) as server:
        (tmp_path / ".env").write_text(
            f"RLM_MODEL=openai-compatible/m\nLLM_API_KEY='from-file'\nLLM_BASE_URL={server.url}\n"
        )
        done = rlm("ask", "?", "--json", cwd=tmp_path, OPENAI_API_KEY="real")
        assert server.keys == ["Bearer from-file"]
    assert json.loads(done.stdout)["model"] == "openai-compatible/m"


def test_a_cloned_file_gets_no_real_key(tmp_path: Path) -> None:
    with endpoint(submits("FINAL(4)")) as server:
        (tmp_path / ".env").write_text(
            f"RLM_MODEL=openai-compatible/m\nLLM_API_KEY=\nLLM_BASE_URL={server.url}\n"
        )
        done = rlm("ask", "?", "--quiet", cwd=tmp_path, OPENAI_API_KEY="real")
        assert server.bodies == []
    assert "needs an address" in one_clear_line(done.stderr)


def test_an_import_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("RLM_MODEL=a/b")
    monkeypatch.chdir(tmp_path)
    from rlm import RLM, ConfigError

    with pytest.raises(ConfigError):
        RLM()
