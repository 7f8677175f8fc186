"""llm with a folder of its own for each test, models that answer from a script, and its command."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import llm
import pytest
from llm.plugins import load_plugins, pm
from llm_rlm import runs

from rlm.fake_server import FakeServer
from tests.models import Said, plugin

SECONDS = 120
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where llm keeps its keys, templates and logs in this test."""
    folder = tmp_path / "llm"
    folder.mkdir()
    monkeypatch.setenv("LLM_USER_PATH", str(folder))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("LLM_RLM_MODELS", raising=False)
    return folder


@pytest.fixture
def said(home: Path) -> Iterator[Said]:
    """The models `scripted`, `small` and `locked`; afterwards all that is open is closed."""
    load_plugins()
    answers = Said()
    made = plugin(answers)
    pm.register(made, name="llm-rlm-tests")
    yield answers
    pm.unregister(made)
    runs.close_all()


class Done:
    """How a command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


class Cli:
    """The real `llm` command, in a process of its own, whose model `mine` is a fake server."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home = home
        self.folder = folder
        self.path = Path(sys.executable).with_name("llm")

    def use(self, server: FakeServer) -> None:
        """Have the model `mine`, set up by a file as llm's documentation says."""
        (self.home / "extra-openai-models.yaml").write_text(
            f"- model_id: mine\n  model_name: m\n  api_base: {server.url}/v1\n"
            "  supports_schema: true\n  supports_tools: true\n"
        )

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        return {**kept, "LLM_USER_PATH": str(self.home)}

    def __call__(self, *arguments: str, stdin: str = "", **variables: str) -> Done:
        done = subprocess.run(
            [str(self.path), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=self.folder,
            env={**self.variables, **variables},
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str, stdin: str = "", **variables: str) -> str:
        """What it prints; it must end well."""
        done = self(*arguments, stdin=stdin, **variables)
        assert done.code == 0, f"llm {arguments}\n{done.out}\n{done.err}"
        return done.out

    def stored(self) -> str:
        """Everything that is in the logs database, as one text."""
        with sqlite3.connect(self.home / "logs.db") as database:
            text = "\n".join(database.iterdump())
        database.close()
        return text

    def last_log(self) -> dict[str, object]:
        rows: list[dict[str, object]] = json.loads(self.ok("logs", "-n", "1", "--json"))
        return rows[0]


@pytest.fixture
def cli(home: Path, tmp_path: Path) -> Cli:
    folder = tmp_path / "here"
    folder.mkdir()
    return Cli(home, folder)


@pytest.fixture
def serve(cli: Cli) -> Iterator[Callable[..., FakeServer]]:
    """Start a fake server with these answers, as the model `mine`."""
    running: list[FakeServer] = []

    def start(*script: object, **options: object) -> FakeServer:
        server = FakeServer(script, **options)  # type: ignore[arg-type]
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
