"""`rlm models pull`: a model is downloaded by an Ollama server, which is played over real HTTP."""

import json
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.local_servers import nowhere
from tests.cli.running import in_terminals

PARTS = [
    {"status": "pulling manifest"},
    {"status": "pulling aaa", "digest": "sha256:aaa", "total": 4_000_000},
    {"status": "pulling aaa", "digest": "sha256:aaa", "total": 4_000_000, "completed": 3_000_000},
    {"status": "pulling bbb", "digest": "sha256:bbb", "total": 10, "completed": 10},
    {"status": "verifying sha256 digest"},
    {"status": "writing manifest"},
    {"status": "success"},
]


@contextmanager
def ollama(
    lines: Sequence[Any], status: int = 200, breaks: bool = False
) -> Generator[tuple[str, list[Any]], None, None]:
    """Yield its address and requests; a broken server disconnects in the middle of a chunk."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            asked.append((self.path, json.loads(self.rfile.read(length))))
            self.send_response(status)
            self.send_header("Content-Type", "application/x-ndjson")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in lines:
                data = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"ff\r\n{" if breaks else b"0\r\n\r\n")
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def test_a_model_is_pulled_and_the_next_command_named(run: Run) -> None:
    with ollama(PARTS) as (address, asked):
        code, out, err = run("models", "pull", "qwen3:8b", OLLAMA_HOST=address)
        assert run("models", "pull", "ollama/qwen3:8b", OLLAMA_HOST=address)[0] == 0
    assert asked == [("/api/pull", {"model": "qwen3:8b", "stream": True})] * 2
    assert (code, out) == (0, "")
    lines = err.splitlines()
    assert lines[0] == "qwen3:8b: pulling manifest"
    assert "qwen3:8b: pulling aaa, 0 of 4 MB" in lines
    assert lines[-1].endswith("-m ollama/qwen3:8b")


def test_in_a_terminal_there_is_a_bar(tmp_path: Path) -> None:
    with ollama(PARTS) as (address, _):
        seen = in_terminals("models", "pull", "m", OLLAMA_HOST=address)
    assert (seen.code, seen.stdout) == (0, b"")
    assert b"pulling aaa" in seen.stderr
    assert "━".encode() in seen.stderr
    assert b"-m ollama/m" in seen.stderr


@pytest.mark.parametrize(
    ("lines", "status", "breaks", "told"),
    [
        (
            [{"error": "pull model manifest: file does not exist"}],
            200,
            False,
            "file does not exist",
        ),
        ([{"error": "x\x1b[31m\nred"}], 500, False, "can't pull nope"),
        ([{}], 500, False, "HTTP status 500"),
        ([b"<html>\n"], 200, False, "it answered"),
        ([b"[" * 60_000 + b"\n"], 200, False, "it answered"),
        ([], 404, False, "is not an Ollama server"),
        (PARTS[:2], 200, False, "before it was complete; run `rlm models pull nope` again"),
        (PARTS[:2], 200, True, "was lost"),
    ],
)
def test_a_failed_pull_is_reported(
    run: Run, lines: list[Any], status: int, breaks: bool, told: str
) -> None:
    with ollama(lines, status, breaks) as (address, _):
        code, out, err = run("models", "pull", "nope", OLLAMA_HOST=address)
    assert (code, out) == (1, "")
    assert told in err.splitlines()[-1]
    assert "\x1b" not in err


@pytest.mark.parametrize("total", [-1, True, "4", 1e300, 2**70, None, [1]])
def test_odd_sizes_are_accepted(run: Run, total: Any) -> None:
    parts = [{"status": "s" * 500, "total": total, "completed": total}, {"status": "success"}]
    with ollama(parts) as (address, _):
        assert run("models", "pull", "m", OLLAMA_HOST=address)[0] == 0


def test_without_a_server_the_error_says_how_to_get_one(run: Run) -> None:
    code, _, err = run("models", "pull", "qwen3:8b", **nowhere())
    assert code == 1
    assert "no Ollama server answers at http://127.0.0.1:" in err
    assert "ollama serve" in err


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 300, "a\nb", "-x", "http://x/y"])
def test_an_invalid_model_name_is_refused(run: Run, name: str) -> None:
    assert run("models", "pull", "--", name, **nowhere())[0] == 2


def test_a_dotenv_cannot_change_the_server(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OLLAMA_HOST=http://evil.example:80\n")
    code, _, err = run("models", "pull", "m")
    assert code == 1
    assert "evil" not in err.splitlines()[-1]
