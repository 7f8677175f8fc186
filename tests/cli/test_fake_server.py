"""`rlm fake-server`: an address on stdout, the rest on stderr, and a clean end."""

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import SECONDS, command, environment, one_clear_line, rlm

SCRIPT = """
[[answers]]
reply = "one"
[[answers]]
status = 503
error = "busy"
"""


@contextmanager
def serving(*arguments: str) -> Generator[tuple[subprocess.Popen[str], str], None, None]:
    """The command in a process of its own, and its address."""
    process = subprocess.Popen(
        command("fake-server", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({}),
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def ask(url: str) -> tuple[int, Any]:
    body = json.dumps({"model": "m\x1b[31m", "messages": []}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.toml"
    path.write_text(SCRIPT, "utf-8")
    return str(path)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_fake_server_serves_and_ends_cleanly(script: str, ending: signal.Signals) -> None:
    with serving(script, "--latency-ms", "1") as (process, url):
        status, found = ask(url)
        assert (status, found["choices"][0]["message"]["content"]) == (200, "one")
        assert ask(url)[0] == 503
        status, found = ask(url)
        assert status == 400
        assert "the script is exhausted" in found["error"]["message"]
        process.send_signal(ending)
        stdout, stderr = process.communicate(timeout=SECONDS)
    assert (process.returncode, stdout) == (0, "")
    lines = stderr.splitlines()
    assert f"export OPENAI_BASE_URL={url}/v1" in lines
    assert "export OPENAI_API_KEY=fake" in lines
    assert "1 /v1/chat/completions chat m\\x1b[31m -> 200" in lines
    assert "2 /v1/chat/completions chat m\\x1b[31m -> 503" in lines
    assert lines[-1] == "3 requests received."


def test_the_loop_and_quiet_options(script: str) -> None:
    with serving(script, "--loop", "--quiet") as (process, url):
        assert [ask(url)[0] for _ in range(4)] == [200, 503, 200, 503]
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=SECONDS)
    assert "chat" not in stderr.replace("chat/completions", "")


def test_other_commands_find_the_fake_server_by_its_variables(script: str, tmp_path: Path) -> None:
    (tmp_path / "rules.jsonl").write_text('{"when": "sky", "reply": "It is blue."}', "utf-8")
    with serving(str(tmp_path / "rules.jsonl")) as (_, url):
        done = rlm(
            *("ask", "What colour is the sky?", "-m", "openai/m-1", "--strategy", "direct"),
            stdin="some context",
            OPENAI_BASE_URL=f"{url}/v1",
            OPENAI_API_KEY="fake",
        )
    assert (done.returncode, done.stdout) == (0, "It is blue.\n")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", "[[answers]]\nrepply = 'x'", "a.toml, answer 1: Object contains unknown field"),
        ("a.toml", "", "the script has no answers"),
        ("a.txt", "hello", "a script's name must end in .toml, .json or .jsonl"),
    ],
)
def test_a_wrong_script_is_reported_in_one_line(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    done = rlm("fake-server", str(tmp_path / name))
    assert done.returncode == 1
    assert words in one_clear_line(done.stderr)


def test_a_missing_script_is_reported() -> None:
    done = rlm("fake-server", "nowhere.toml")
    assert done.returncode == 1
    assert "nowhere.toml" in one_clear_line(done.stderr)


def test_a_taken_port_is_reported(script: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = rlm("fake-server", script, "--port", str(port))
    assert done.returncode == 1
    assert f"port {port} is taken" in one_clear_line(done.stderr)
    assert "choose one with --port N" in done.stderr


def test_help_loads_no_heavy_modules_and_shows_a_script() -> None:
    code = (
        "import sys\nfrom rlm.cli import main\n"
        "try:\n    main(['fake-server', '--help'])\n"
        "except SystemExit:\n    assert not {'aiohttp', 'asyncio'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[[answers]]" in done.stdout
    assert "--latency-ms" in done.stdout
