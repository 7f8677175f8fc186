"""Commands with addresses: what they print and record, and what they hide."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm import RLM, ScriptedClient, place
from rlm.context import warn_of_path
from tests.data.places.web_server import WebServer, web_server

SECRETS = ("pa55word", "s1gnature")


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server() as made:
        made.pages(**{"notes.txt": b"The tide gate opens at noon.\n", "t.csv": b"a\n1\n2\n"})
        yield made


@pytest.fixture
def signed(server: WebServer) -> str:
    host = server.url.removeprefix("http://")
    return f"http://user:pa55word@{host}/notes.txt?sig=s1gnature"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLM_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def ask(home: Path, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-m", "rlm", "ask", "When does the tide gate open?", *arguments]
    return subprocess.run(program, input=stdin, capture_output=True, text=True, cwd=home)


@pytest.mark.heavy
def test_a_signed_address_is_not_recorded_anywhere(
    home: Path, server: WebServer, signed: str
) -> None:
    done = ask(home, "-f", signed, "-m", "offline/extractive", "--log-dir", "kept", "--json")
    assert "The tide gate opens at noon." in done.stdout
    assert f"Fetched 1 file (0.0 MB) from {server.url}/notes.txt?…." in done.stderr
    kept = [path for path in home.rglob("*") if path.is_file()]
    assert {".jsonl", ".txt"} <= {path.suffix for path in kept}
    for secret in SECRETS:
        assert secret not in done.stdout + done.stderr
        assert [path for path in kept if secret.encode() in path.read_bytes()] == []


def test_local_files_and_addresses_can_be_combined(
    home: Path, server: WebServer, signed: str
) -> None:
    (home / "here.txt").write_text("A lighthouse.\n")
    done = ask(home, "-f", "here.txt", "-f", signed, "-m", "offline/extractive")
    name = f"{server.url.replace('://', '/')}/notes.txt/notes.txt"
    assert name in done.stdout
    piped = ask(home, "-f", "-", "-f", signed, "-m", "offline/extractive", stdin="A lighthouse.\n")
    assert "The tide gate opens at noon." in piped.stdout
    pattern = ask(home, "-f", "*.txt", "-f", signed, "-m", "offline/extractive")
    assert (pattern.returncode, pattern.stderr.count("\n")) == (1, 2)
    assert "a pattern of local files can't be combined with an address" in pattern.stderr


@pytest.mark.heavy
def test_rows_of_a_batch_may_name_addresses(home: Path, server: WebServer, signed: str) -> None:
    row = json.dumps({"query": "When does the tide gate open?", "context_file": signed})
    gone = json.dumps({"query": "?", "context_file": f"{server.url}/gone.txt?sig=s1gnature"})
    (home / "rows.jsonl").write_text(f"{row}\n{row}\n{gone}\n")
    program = [sys.executable, "-m", "rlm", "batch", "rows.jsonl", "-m", "offline/extractive"]
    done = subprocess.run(program, capture_output=True, text=True, cwd=home)
    lines = (home / done.stdout.strip()).read_text().splitlines()
    assert ["The tide gate opens at noon." in line for line in lines] == [True, True, False]
    got = [asked.path for asked in server.asked if asked.method == "GET"]
    assert [path.partition("?")[0] for path in got].count("/notes.txt") == 1
    kept = [path for path in home.rglob("*") if path.is_file() and path.name != "rows.jsonl"]
    for secret in SECRETS:
        assert secret not in done.stdout + done.stderr
        assert [path for path in kept if secret.encode() in path.read_bytes()] == []


@pytest.mark.heavy
def test_quiet_suppresses_fetch_messages(home: Path, signed: str) -> None:
    done = ask(home, "-q", "-f", signed, "-m", "offline/extractive")
    assert "Fetched" not in done.stderr


@pytest.mark.heavy
def test_the_fetched_bytes_are_limited(home: Path, server: WebServer) -> None:
    server.pages(big=b"x" * 1_000_001)
    done = ask(home, "-q", "-f", f"{server.url}/big", "--max-fetch-mb", "1")
    assert done.returncode == 1
    assert "has at least 1.0 MB, and at most 1.0 MB are fetched; choose less" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_table_at_an_address_can_be_queried(home: Path, server: WebServer) -> None:
    from rlm import table

    client = ScriptedClient(["```repl\nFINAL([context.name, len(context)])\n```"])
    with RLM(client) as engine:
        assert engine.ask("How many?", table(f"{server.url}/t.csv")).answer == "['t', 2]"


def test_a_text_that_looks_like_an_address_gets_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"to read what it points to, pass place\(…\)"):
        warn_of_path("s3://bucket/logs/")
    with pytest.warns(UserWarning, match="the address itself, as text") as told:
        warn_of_path("https://host/x.csv?sig=s1gnature")
    assert "s1gnature" not in str(told[0].message)


def test_an_address_turned_into_a_path_is_explained() -> None:
    from rlm import ConfigError
    from rlm.context import store_context

    with pytest.raises(ConfigError, match=r"no such file or folder: s3:/bucket/logs; for an "):
        store_context(Path("s3://bucket/logs"))
    assert place("s3://bucket/logs").shown == "s3://bucket/logs"
