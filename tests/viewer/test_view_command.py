"""`rlm view` as a user starts it: a process, an address on stderr, Ctrl-C."""

import json
import queue
import re
import signal
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
from tests.trajectories.samples import one_run, written
from tests.viewer.serving import static_folder

START = """
import sys, click, pathlib
from rlm.cli import _border
from rlm.cli.view import view
import rlm.viewer.assets, rlm.viewer.server
rlm.viewer.server.ViewerServer.__init__.__kwdefaults__["static"] = pathlib.Path(sys.argv.pop(1))
commands = click.Group()
commands.add_command(view)
sys.exit(_border.run(commands))
"""
"""With a page of the tests, so that they do not depend on the one that is built."""

ADDRESS = re.compile(r"Viewer: (http://\S+)")


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    static = folder / "static" if (folder / "static").exists() else static_folder(folder)
    return subprocess.Popen(
        [sys.executable, "-c", START, str(static), "view", "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"RLM_STATE_DIR": str(folder / "state")}),
    )


@contextmanager
def viewing(
    folder: Path, *arguments: str
) -> Generator[tuple[str, subprocess.Popen[str]], None, None]:
    with started(folder, *arguments) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            found = ADDRESS.search(line)
            assert found, line + process.stderr.read()
            yield found[1], process
        finally:
            process.kill()


def get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=60) as response:
        return json.load(response)


def test_ctrl_c_ends_it_with_a_word(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r"))
    for number in (signal.SIGINT, signal.SIGTERM):
        with viewing(tmp_path, str(path)) as (address, process):
            assert get(f"{address}api/viewer")["title"] == "a.jsonl"
            process.send_signal(number)
            assert process.stderr is not None
            assert process.stderr.read() == "The viewer has ended.\n"
            assert process.wait(60) == 0


def test_a_run_is_named_in_any_way(tmp_path: Path) -> None:
    result = offline(tmp_path / "state")
    for name in (result.run_id, "last", result.run_id[-8:]):
        with viewing(tmp_path, name) as (address, _):
            base, _, page = address.partition("#")
            assert page == f"/run/{result.run_id}"
            told = get(f"{base}api/runs")
            assert result.run_id in json.dumps(told)
            assert get(f"{base}api/viewer")["can_fork"] is True


def test_bound_elsewhere_it_prints_a_token(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r"))
    with viewing(tmp_path, str(path), "--host", "0.0.0.0") as (address, _):
        assert re.search(r"/\?token=[\w-]{40,}$", address)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl"),
        (["no-such-run"], "no run is called"),
        (["--context", "nowhere.txt"], "nowhere.txt"),
        (["--host", "192.0.2.1"], "can't listen"),
    ],
)
def test_what_can_not_be_shown_is_one_sentence(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    with started(tmp_path, *arguments) as process:
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert words in one_clear_line(stderr)


def test_a_viewer_beside_a_run_opens_its_page_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlm.cli import _view_beside
    from rlm.viewer import server

    opened: queue.Queue[str] = queue.Queue()
    defaults: Any = server.ViewerServer.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "static", static_folder(tmp_path))
    monkeypatch.setenv("RLM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr("webbrowser.open", opened.put)
    with _view_beside.view_beside(0) as page:
        for _ in range(2):
            page.record(one_run("r")[0])
        address = opened.get(timeout=60)
        base, _, route = address.partition("#")
        assert route == "/run/r"
        assert get(f"{base}api/runs")["runs"] == []
    assert opened.empty()
    assert address in capsys.readouterr().err
