"""Fixtures: a separate llm folder for each test, scripted models, and the llm command."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llm
import pytest
from llm.plugins import load_plugins, pm
from llm_command import Cli
from llm_rlm import chats
from scripted_models import Said, plugin

from rlm.testing.fake_server import FakeServer

# A shell that starts the tests in the background makes them, and all they start, deaf to Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of llm's keys, templates and logs in this test."""
    folder = tmp_path / "llm"
    folder.mkdir()
    monkeypatch.setenv("LLM_USER_PATH", str(folder))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("LLM_RLM_MODELS", raising=False)
    return folder


@pytest.fixture
def said(home: Path) -> Iterator[Said]:
    """The models `scripted`, `small` and `locked`; close all open chats afterwards."""
    load_plugins()
    answers = Said()
    made = plugin(answers)
    pm.register(made, name="llm-rlm-tests")
    yield answers
    pm.unregister(made)
    chats.close_all()


@pytest.fixture
def cli(home: Path, tmp_path: Path) -> Cli:
    folder = tmp_path / "here"
    folder.mkdir()
    return Cli(home, folder)


@pytest.fixture
def serve(cli: Cli) -> Iterator[Callable[..., FakeServer]]:
    """Start a fake server with these answers, as the model `mine`."""
    running: list[FakeServer] = []

    def start(*script: Any, **options: Any) -> FakeServer:
        server = FakeServer(script, **options)
        server.__enter__()
        running.append(server)
        cli.use(server)
        return server

    yield start
    for server in running:
        server.__exit__(None, None, None)


@pytest.fixture
def wrapped(said: Said) -> llm.Model:
    """`rlm/scripted`."""
    return llm.get_model("rlm/scripted")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name every skipped test and why; `.ci/test-all` counts the lines that start with SKIP."""
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"SKIP {report.nodeid}: {reason.removeprefix('Skipped: ')}")
