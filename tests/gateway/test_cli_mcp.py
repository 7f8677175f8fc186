"""`rlm mcp` as a client starts it: a process, a pipe, and nothing else on it."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from mcp import Client

from rlm.cli._mcp_roots import denials_of
from rlm.cli._mcp_serving import models_of
from rlm.data.filesystem.denial import DEFAULT_DENIALS
from rlm.errors import ConfigError
from rlm.gateway.stdio import MAX_LINE_BYTES
from rlm.settings.configuration import set_value
from tests.cli.running import SECONDS, command, environment, one_clear_line, rlm
from tests.endpoint import endpoint
from tests.gateway.serving import TEXT, answer, http_client, make_tree, over_http, refusal, stdio

NOISY = """
import atexit, logging, os, subprocess, sys

class Chatty:
    def find_spec(self, name, path=None, target=None):
        if name == "mcp":
            print("NOISE import")
            os.write(1, b"NOISE import\\n")

sys.meta_path.insert(0, Chatty())
atexit.register(lambda: (print("NOISE exit", flush=True), os.write(1, b"NOISE exit\\n")))
from rlm.cli import main
from rlm.gateway.gateway import Gateway
quiet = Gateway.create_session

def create_session(self, *given, **named):
    print("NOISE print")
    print("NOISE original", file=sys.__stdout__, flush=True)
    os.write(1, b"NOISE write\\n")
    subprocess.run(["sh", "-c", "echo NOISE child; echo NOISE descriptor >/proc/self/fd/1"])
    child = "import os, sys; print('NOISE python'); os.write(1, b'NOISE low.')"
    subprocess.run([sys.executable, "-c", child], close_fds=False)
    leak = "for n in /proc/self/fd/*; do echo NOISE leak 2>&- >&${n##*/}; done 2>&-; true"
    subprocess.run(["bash", "-c", leak], close_fds=False)
    logging.getLogger("library").warning("NOISE log")
    return quiet(self, *given, **named)

Gateway.create_session = create_session
main(sys.argv[1:])
"""
DONE = '```repl\nFINAL({"answer": "all is well", "citations": []})\n```'
RUNS: dict[str, Any] = {
    **dict.fromkeys(("model", "sub_model", "max_steps", "max_depth", "max_tokens", "timeout")),
    "environment": "local",
    "environment_options": (),
    "price": None,
}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}
CREATE = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "rlm_session_create", "arguments": {}},
}


class Said(NamedTuple):
    """All that a gateway wrote until it ended."""

    code: int
    stdout: bytes
    stderr: bytes


def talk(program: list[str], sent: bytes, answers: int) -> Said:
    """Send some bytes, wait for this number of lines, close the pipe, and wait for the end."""
    process = subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment({}),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(sent)
    process.stdin.flush()
    first = b"".join(process.stdout.readline() for _ in range(answers))
    rest, said = process.communicate(timeout=SECONDS)
    return Said(process.returncode, first + rest, said)


def as_lines(*messages: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in messages)


@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.heavy)])
async def test_a_client_lists_searches_and_reads(tmp_path: Path, mode: str) -> None:
    record = tmp_path / "record.jsonl"
    options = ("--root", f"code={make_tree(tmp_path)}", "--show-names", "--max-calls", "4")
    async with Client(
        stdio(*options, "--allow", "*.pem", "--deny", "*.py", "--provenance", str(record)),
        mode=mode,
    ) as client:
        begun = await answer(client, "rlm_session_create")
        assert (begun["roots"], begun["left"]["calls"]) == (["code"], 4)
        session = begun["session"]
        listed = await answer(client, "rlm_list", session=session)
        assert [each["name"] for each in listed["files"]] == ["docs/notes.txt", "server.pem"]
        found = await answer(client, "rlm_search", session=session, query="line 250$", mode="regex")
        assert [hit["line"] for hit in found["hits"]] == []
        found = await answer(client, "rlm_search", session=session, query="notes 250")
        (best, *_) = found["hits"]
        span = await answer(client, "rlm_read", session=session, handle=best["handle"])
        assert TEXT.startswith(span["text"])
        assert span["left"]["calls"] == 0
        assert "all 4 calls" in await refusal(client, "rlm_list", session=session)
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert {line["principal"] for line in lines} == {"local"}
    assert len(lines) == 5


@pytest.mark.heavy
def test_only_protocol_messages_reach_stdout(tmp_path: Path) -> None:
    program = [sys.executable, "-c", NOISY, "mcp", "--root", str(make_tree(tmp_path))]
    done = talk(program, as_lines(INITIALIZE, CREATE), 2)
    assert done.code == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["id"] for each in answers] == [1, 2]
    assert not answers[1]["result"]["isError"]
    noise = set(re.findall(rb"NOISE \w+", done.stderr))
    kinds = "import print original write child descriptor python low leak log exit"
    assert noise == {f"NOISE {kind}".encode() for kind in kinds.split()}


@pytest.mark.heavy
async def test_a_client_works_with_a_gateway_that_prints(tmp_path: Path) -> None:
    given = ("--root", str(make_tree(tmp_path)))
    async with Client(stdio(*given, noise=NOISY)) as client:
        session = (await answer(client, "rlm_session_create"))["session"]
        assert len((await answer(client, "rlm_list", session=session))["files"]) == 2


@pytest.mark.heavy
def test_a_message_that_is_too_long_is_dropped_and_the_next_is_answered(tmp_path: Path) -> None:
    long = b'{"jsonrpc":"2.0","id":9,"method":"ping","x":"' + b"x" * MAX_LINE_BYTES + b'"}\n'
    strange = long + b"no json\n\n\xff\xfe\n[]\n{}\n"
    program = command("mcp", "--root", str(make_tree(tmp_path)))
    done = talk(program, as_lines(INITIALIZE) + strange + as_lines(CREATE), 2)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["id"] for each in answers if "result" in each] == [1, 2]
    assert done.code == 0
    assert b"Traceback" not in done.stderr
    assert b"was dropped" in done.stderr


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.heavy)]
)
def test_a_signal_ends_the_gateway_even_if_the_client_is_silent(
    tmp_path: Path, number: int
) -> None:
    process = subprocess.Popen(
        command("mcp", "--root", str(make_tree(tmp_path))),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment({}),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(as_lines(INITIALIZE, CREATE))
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    assert json.loads(process.stdout.readline())["id"] == 2
    process.send_signal(number)
    assert process.wait(SECONDS) == 0
    _, said = process.communicate()
    assert said == b""


@pytest.mark.heavy
async def test_concurrent_gateways_write_separate_records(tmp_path: Path) -> None:
    options = ("--root", str(make_tree(tmp_path)))
    state = {"RLM_STATE_DIR": str(tmp_path / "state")}
    async with (
        Client(stdio(*options, variables=state)) as one,
        Client(stdio(*options, variables=state)) as two,
    ):
        for client in (one, two):
            await answer(client, "rlm_session_create")
        files = [*(tmp_path / "state" / "provenance").iterdir()]
    assert len(files) == 2
    assert {each.stat().st_mode & 0o777 for each in files} == {0o600}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--root DIR"),
        (["--root", "{tmp}/nowhere"], "can't be opened"),
        (["--root", "{tmp}/tree", "--root", "{tmp}/other/tree"], "two roots are called 'tree'"),
        (["--root", "{tmp}/tree", "--allow", "*.exe"], "not one of the usual denials"),
        (["--root", "{tmp}/tree", "--deny", "a/b"], "contains no slash"),
        (["--root", "{tmp}/tree", "--provenance", "{tmp}/tree/p.jsonl"], "clients could read it"),
        (["--root", "{tmp}/tree", "--provenance", "{tmp}/link/p.jsonl"], "clients could read it"),
        (["--root", "{tmp}/tree", "--provenance", "{tmp}/spoiled"], "not an intact provenance"),
        (["--root", "{tmp}/tree", "--max-calls", "0"], "--max-calls"),
        (
            ["--root", "{tmp}/tree", "--port", "1", "--allowed-host", "x"],
            "--allowed-host, --port can",
        ),
        (["--root", "{tmp}/tree", "doctor"], "put options after 'doctor'"),
        (["--root", "{tmp}/tree", "--token-file", "{tmp}/tree/t", "--http"], "the token file"),
    ],
)
def test_impossible_settings_are_reported_in_one_line(
    tmp_path: Path, options: list[str], words: str
) -> None:
    make_tree(tmp_path)
    (tmp_path / "other" / "tree").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "tree")
    (tmp_path / "spoiled").write_text("{}\n", "utf-8")
    done = rlm("mcp", *(each.format(tmp=tmp_path) for each in options))
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert words in one_clear_line(done.stderr)


def test_without_the_mcp_package_the_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(
        "import importlib.util as u, sys\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'mcp' else find(name, *rest)\n"
        "from rlm.cli import main\nmain(sys.argv[1:])\n",
        "utf-8",
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "bare.py"), "mcp", "--root", "."],
        capture_output=True,
        text=True,
        env=environment({}),
        timeout=SECONDS,
        check=False,
    )
    assert "pip install 'recursivelm[mcp]'" in one_clear_line(done.stderr)


def test_default_denials_can_be_dropped_all_together_or_one_by_one() -> None:
    assert denials_of([], [], usual=True).patterns == DEFAULT_DENIALS
    assert denials_of(["*.sql"], [], usual=False).patterns == ("*.sql",)
    assert ".env" not in denials_of([], [".env"], usual=True).patterns


@pytest.mark.heavy
async def test_runs_use_the_operators_model_if_there_is_one(tmp_path: Path) -> None:
    """Over HTTP to a server here; the limits of the command line hold for the run."""

    def model(_: dict[str, Any]) -> str:
        return "```repl\nprint(len(context))\n```" if len(server.bodies) < 2 else DONE

    options = ("--root", str(make_tree(tmp_path)), "-m", "openai/gpt-5", "--max-steps", "2")
    with endpoint(model) as server:
        variables = {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": server.url}
        async with Client(stdio(*options, variables=variables)) as client:
            session = (await answer(client, "rlm_session_create"))["session"]
            run = await answer(client, "rlm_complete", session=session, query="?", path="docs")
            assert (run["status"], run["answer"]) == ("done", "all is well")
            assert run["left"]["runs"] == 49
    assert [body["model"] for body in server.bodies] == ["gpt-5", "gpt-5"]
    assert "swordfish" not in json.dumps(server.bodies)


@pytest.mark.parametrize(
    ("options", "variables", "model"),
    [
        ({}, {}, None),
        ({}, {"OPENAI_API_KEY": "sk-x"}, "openai/"),
        ({}, {"RLM_MODEL": "ollama/a", "OPENAI_API_KEY": "sk-x"}, "ollama/a"),
        ({"model": "anthropic/b"}, {"RLM_MODEL": "ollama/a"}, "anthropic/b"),
    ],
)
def test_options_win_over_variables_and_the_clients_model_comes_last(
    options: dict[str, Any], variables: dict[str, str], model: str | None
) -> None:
    found = models_of(SimpleNamespace(**{**RUNS, **options}), variables).model
    assert found == model or (model is not None and str(found).startswith(model))


def test_user_settings_apply_but_project_settings_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rlm.toml").write_text('model = "ollama/theirs"')
    variables = {"RLM_CONFIG_DIR": str(tmp_path / "config")}
    assert models_of(SimpleNamespace(**RUNS), variables).model is None
    set_value(variables, "model", "ollama/mine")
    assert models_of(SimpleNamespace(**RUNS), variables).model == "ollama/mine"


@pytest.mark.parametrize(
    ("options", "words"),
    [({"environment": "moon"}, "there is no environment"), ({"model": "what"}, "what")],
)
def test_invalid_run_settings_are_reported_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        models_of(SimpleNamespace(**{**RUNS, **options}), {})


@pytest.mark.heavy
@pytest.mark.parametrize("kept", ["file", pytest.param("variable", marks=pytest.mark.heavy)])
async def test_mcp_connect_relays_to_a_remote_gateway(tmp_path: Path, kept: str) -> None:
    token = "anne-0123456789abcdef"
    (tmp_path / "token").write_text(token, "utf-8")
    options = ("--root", str(make_tree(tmp_path)), "--token-file", str(tmp_path / "token"))
    with over_http(*options) as served:
        keeping = ("--token-file", str(tmp_path / "token"))
        if kept == "variable":
            keeping = ("--token-env", "GATEWAY_TOKEN")
        given = ("connect", "--url", served.url, *keeping)
        async with (
            Client(stdio(*given, variables={"GATEWAY_TOKEN": token})) as near,
            http_client(served.url, token) as far,
        ):
            assert (await near.list_tools()).tools == (await far.list_tools()).tools
            session = (await answer(near, "rlm_session_create"))["session"]
            assert await answer(near, "rlm_list", session=session)
            assert "unknown, or has ended" in await refusal(near, "rlm_list", session="s_other")
        if kept == "variable":
            done = rlm("mcp", *given, GATEWAY_TOKEN="x" * 20)
            assert done.returncode == 1
            assert "401" in one_clear_line(done.stderr)


def test_a_variable_without_a_token_is_reported() -> None:
    given = ("--url", "http://127.0.0.1:1/mcp", "--token-env", "GATEWAY_TOKEN")
    done = rlm("mcp", "connect", *given)
    assert "GATEWAY_TOKEN contains no token" in one_clear_line(done.stderr)
