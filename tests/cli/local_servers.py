"""Plays a model server on a free port: Ollama, LM Studio, llama.cpp, vLLM, or something else."""

import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

CHAT = {
    "choices": [
        {"message": {"role": "assistant", "content": 'FINAL("blue")'}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2},
}


class Playing(NamedTuple):
    """Its address, and the requests it received: method, path and key."""

    port: int
    asked: list[tuple[str, str, str | None]]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def playing(pages: Mapping[str, Any], key: str | None = None) -> Generator[Playing, None, None]:
    """Pages by path: bytes as they are, anything else as JSON. A key, if it wants one."""
    asked: list[tuple[str, str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.headers.get("Authorization")
            asked.append((self.command, self.path, given))
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
            page = pages.get(self.path)
            allowed = key is None or given == f"Bearer {key}"
            self.send_response(401 if not allowed else 200 if page is not None else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            if allowed:
                self.wfile.write(page if isinstance(page, bytes) else json.dumps(page).encode())

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield Playing(server.server_port, asked)
        finally:
            server.shutdown()
            thread.join()


def listed(*names: str, **more: Any) -> dict[str, Any]:
    """The answer to GET /v1/models."""
    return {"object": "list", "data": [{"id": name, "object": "model", **more} for name in names]}


def ollama(*names: str, loaded: int | None = None) -> dict[str, Any]:
    running = [{"name": name, "context_length": loaded} for name in names[:1] if loaded]
    pages = {"/v1/models": listed(*names), "/api/ps": {"models": running}}
    return {**pages, "/v1/chat/completions": CHAT}


def nowhere(**but: str) -> dict[str, str]:
    """Variables that keep commands away from servers really running on this machine."""
    dead = "127.0.0.1:1"  # No server listens there, and no test is given this port.
    names = ("LMSTUDIO_BASE_URL", "LLAMACPP_BASE_URL", "VLLM_BASE_URL")
    return {**dict.fromkeys(names, f"http://{dead}/v1"), "OLLAMA_HOST": dead, **but}
