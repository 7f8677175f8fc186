"""`rlm doctor`: what it finds is true, and no key is ever shown."""

import json
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from rlm.cli import _checks
from rlm.cli.doctor import report, to_do
from rlm.environments.local import LocalEnvironment
from tests.cli.running import rlm


def test_a_fresh_machine(tmp_path: Path) -> None:
    done = rlm("doctor", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "environment  local works; layers: " in done.stdout
    assert "seccomp" in done.stdout
    assert "offline/extractive, because no model is configured" in done.stdout
    assert "to do        For a real model, set a key such as OPENAI_API_KEY" in done.stdout


def test_keys_are_counted_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("GROQ_API_KEY=sk-file\nOLLAMA_HOST=evil\n")
    done = rlm("doctor", "--json", cwd=tmp_path, OPENAI_API_KEY="sk-real", RLM_SUB_MODEL="groq/x")
    assert "sk-" not in done.stdout
    found = json.loads(done.stdout)
    assert found["keys"]["OPENAI_API_KEY"] is True
    assert found["keys"]["GROQ_API_KEY"] is True
    assert found["keys"]["OPENROUTER_API_KEY"] is False
    assert found["dotenv"]["taken"] == ["GROQ_API_KEY"]
    assert list(found["dotenv"]["ignored"]) == ["OLLAMA_HOST"]
    assert found["model"]["default"] == "openai/gpt-5-mini"
    assert found["model"]["why"] == "OPENAI_API_KEY is set"
    assert found["model"]["sub_model"] == "groq/x"
    local = found["environments"]["local"]
    assert (local["works"], local["problem"]) == (True, None)
    assert "seccomp" in local["layers"]


def test_a_model_that_can_not_be_used_is_a_failure(tmp_path: Path) -> None:
    done = rlm("doctor", cwd=tmp_path, RLM_MODEL="groq/x\x1b[31m")
    assert done.returncode == 1
    assert "set GROQ_API_KEY" in done.stdout
    assert "`rlm ask` would fail." in done.stdout
    assert "\x1b" not in done.stdout


def test_an_environment_that_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = LocalEnvironment(python="/nowhere/python")
    monkeypatch.setattr(_checks, "make_environment", lambda name: nowhere)
    check = _checks.check_environment("local")
    assert not check.works
    assert check.problem is not None
    assert "/nowhere/python" in check.problem


@contextmanager
def answering(body: bytes) -> Generator[int, None, None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/v1/models"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("body", "models"),
    [
        (b'{"data": [{"id": "qwen3:8b"}, {"id": "b"}]}', ("qwen3:8b", "b")),
        (b'{"data": []}', ()),
        (b"<html>another program</html>", None),
        (b'{"data": null}', None),
        (b'{"data": [1]}', None),
        (b"[]", None),
    ],
)
def test_servers(
    body: bytes, models: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_checks, "ANSWER_SECONDS", 30.0)
    with answering(body) as port:
        assert _checks.probe(f"http://localhost:{port}/v1") == models


def test_nobody_there_and_nobody_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checks, "ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert _checks.probe(f"http://localhost:{port}/v1") is None
    assert _checks.probe(f"http://localhost:{port}/v1") is None


def test_a_server_that_answers_is_proposed() -> None:
    server = {
        "provider": "ollama",
        "address": "http://localhost:11434/v1",
        "answers": True,
        "models": ["qwen3:8b"],
    }
    found = {
        "ok": True,
        "version": "1",
        "python": "3",
        "platform": "p",
        "model": {
            "default": "offline/extractive",
            "sub_model": "groq/x",
            "why": "w",
            "fallback": True,
            "problem": None,
        },
        "keys": {},
        "dotenv": {"path": None, "taken": [], "ignored": {}},
        "servers": [server],
        "environments": {"local": {"works": True, "problem": None, "layers": [], "missing": []}},
        "extras": {"documents": False, "typed": True},
    }
    proposals = to_do(found)
    assert "ollama answers here: rlm ask -m ollama/qwen3:8b …" in proposals
    assert any("rlm-engine[documents]" in line for line in proposals)
    lines = dict(report({**found, "to_do": proposals}))
    assert lines["server"] == "ollama answers at http://localhost:11434/v1: qwen3:8b"
    assert lines["model"] == "offline/extractive, because w; calls: groq/x"
