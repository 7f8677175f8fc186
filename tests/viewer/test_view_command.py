"""`rlm view` as a user starts it: a process, an address on stderr, Ctrl-C."""

import html
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kept import offline
from tests.cli.running import environment, one_clear_line
from tests.records.trajectories.samples import one_run, written
from tests.viewer.serving import static_folder

START = """
import sys, click, pathlib
from rlm.cli import _errors
from rlm.cli.view import view
import rlm.viewer.assets, rlm.viewer.server
rlm.viewer.server.ViewerServer.__init__.__kwdefaults__["static"] = pathlib.Path(sys.argv.pop(1))
commands = click.Group()
commands.add_command(view)
sys.exit(_errors.run(commands))
"""
"""With a page of the tests, so that they do not depend on the one that is built."""

ADDRESS = re.compile(r"Viewer: (http://\S+)")


def started(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    static = folder / "static" if (folder / "static").exists() else static_folder(folder)
    return subprocess.Popen(
        [sys.executable, "-c", START, str(static), "view", "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"RLM_STATE_DIR": str(folder / "state"), **variables}),
    )


@contextmanager
def viewing(
    folder: Path, *arguments: str, **variables: str
) -> Generator[tuple[str, subprocess.Popen[str]], None, None]:
    with started(folder, *arguments, **variables) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            found = ADDRESS.search(line)
            assert found, line + process.stderr.read()
            yield found[1], process
        finally:
            process.kill()


def get(address: str, path: str) -> Any:
    """Request a path as a program that has the printed address."""
    base, _, token = address.partition("#")[0].partition("?token=")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    asked = urllib.request.Request(f"{base}{path}", headers=headers)
    with urllib.request.urlopen(asked, timeout=60) as response:
        return json.load(response)


def test_ctrl_c_ends_the_viewer_with_a_message(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r"))
    for number in (signal.SIGINT, signal.SIGTERM):
        with viewing(tmp_path, str(path)) as (address, process):
            assert get(address, "api/viewer")["title"] == "a.jsonl"
            process.send_signal(number)
            assert process.stderr is not None
            assert process.stderr.read() == "The viewer has stopped.\n"
            assert process.wait(60) == 0


@pytest.mark.heavy
def test_a_run_can_be_named_by_id_part_or_last(tmp_path: Path) -> None:
    result = offline(tmp_path / "state")
    for name in (result.run_id, "last", result.run_id[-8:]):
        with viewing(tmp_path, name) as (address, _):
            assert address.partition("#")[2] == f"/run/{result.run_id}"
            assert result.run_id in json.dumps(get(address, "api/runs"))
            assert get(address, "api/viewer")["can_fork"] is True


def test_on_another_address_the_viewer_prints_a_token(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r"))
    with viewing(tmp_path, str(path), "--host", "0.0.0.0") as (address, _):
        assert re.search(r"/\?token=[\w-]{40,}$", address)


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl", 1),
        (["no-such-run"], "no run is called", 1),
        (["--context", "nowhere.txt"], "--context", 2),
        (["--host", "192.0.2.1"], "can't listen", 1),
    ],
)
def test_an_impossible_argument_is_reported_in_one_sentence(
    tmp_path: Path, arguments: list[str], words: str, code: int
) -> None:
    with started(tmp_path, *arguments) as process:
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == code
    assert words in one_clear_line(stderr)


def test_a_viewer_started_with_a_run_opens_its_page_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlm.cli import _viewing
    from rlm.viewer import server

    opened: queue.Queue[str] = queue.Queue()
    defaults: Any = server.ViewerServer.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "static", static_folder(tmp_path))
    monkeypatch.setenv("RLM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr("webbrowser.open", opened.put)
    with _viewing.view_beside(0) as page:
        for _ in range(2):
            page.record(one_run("r")[0])
        file = _file_of(opened.get(timeout=60))
        address = _leads_to(file)
        assert address.partition("#")[2] == "/run/r"
        assert get(address, "api/runs")["runs"] == []
    assert opened.empty()
    assert not file.exists()
    assert address in capsys.readouterr().err


# -- other users of the machine -------------------------------------------------------------------


def _file_of(address: str) -> Path:
    assert address.startswith("file://"), "a token must not be an argument of the browser"
    return Path(urllib.request.url2pathname(address.removeprefix("file://")))


def _leads_to(file: Path) -> str:
    assert file.stat().st_mode & 0o777 == 0o600
    found = re.search(r'url=([^"]+)"', file.read_text("utf-8"))
    assert found is not None
    return html.unescape(found[1])


def test_the_browser_is_opened_without_exposing_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlm.cli._viewing import opened

    asked: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr("webbrowser.open", asked.put)
    with opened("http://127.0.0.1:3001/?token=a&b#/run/r"):
        file = _file_of(asked.get(timeout=60))
        assert _leads_to(file) == "http://127.0.0.1:3001/?token=a&b#/run/r"
    assert not file.exists()


def _asked_as(user: int, base: str, paths: list[str]) -> list[int]:
    """The statuses that another user of this machine gets, in a process of that user's."""
    host, _, port = base.removeprefix("http://").rstrip("/").partition(":")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            for path in paths:
                with socket.socket() as connection:  # It may import nothing else.
                    connection.connect((host, int(port)))
                    head = f"GET /{path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
                    connection.sendall(head.encode())
                    os.write(writing, connection.recv(100).split()[1] + b" ")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        statuses = [int(each) for each in said.read().split()]
    os.waitpid(child, 0)
    return statuses


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_other_users_of_the_machine_see_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r"))
    with viewing(tmp_path, str(path)) as (address, process):
        base, _, token = address.partition("?token=")
        paths = ["", "api/runs", "api/runs/r", "api/viewer", "?token=guessed"]
        assert _asked_as(65_534, base, paths) == [403] * len(paths)
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode()
        assert token not in command


@pytest.mark.heavy
def test_the_token_is_random_given_or_disabled(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r"))
    seen = set()
    for _ in range(2):
        with viewing(tmp_path, str(path)) as (address, _process):
            found = re.fullmatch(r"http://127.0.0.1:\d+/\?token=([\w-]{40,})", address)
            assert found is not None
            seen.add(found[1])
    assert len(seen) == 2
    with viewing(tmp_path, str(path), "--token", "a-token-of-my-own") as (address, _process):
        assert address.endswith("?token=a-token-of-my-own")
        assert get(address, "api/viewer")["title"] == "a.jsonl"
    with viewing(tmp_path, str(path), "--no-token") as (address, _process):
        assert "token" not in address
        assert get(address, "api/viewer")["title"] == "a.jsonl"
    with viewing(tmp_path, str(path), "--no-token", "--host", "0.0.0.0") as (address, _process):
        assert "?token=" in address, "elsewhere it is always needed"
    with started(tmp_path, str(path), "--token", "short") as process:
        _, stderr = process.communicate(timeout=60)
    assert "openssl rand" in one_clear_line(stderr)
