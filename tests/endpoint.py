"""A real HTTP server that speaks chat completions from a function, for tests of whole programs."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], str]


class Endpoint:
    """Where it listens, and what it was asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}/v1"
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []


@contextmanager
def endpoint(answer: Answer, cost: float | None = None) -> Generator[Endpoint, None, None]:
    """Serve on loopback until the block ends. `answer` gets the request body.

    `cost` is what each reply states as its charge, as OpenRouter does.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            running.bodies.append(body)
            running.keys.append(self.headers["Authorization"])
            message = {"role": "assistant", "content": answer(body)}
            usage: dict[str, Any] = {"prompt_tokens": 500, "completion_tokens": 10}
            usage |= {} if cost is None else {"cost": cost}
            choices = [{"message": message, "finish_reason": "stop"}]
            reply = json.dumps({"model": body["model"], "choices": choices, "usage": usage})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply.encode())))
            self.end_headers()
            self.wfile.write(reply.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    running = Endpoint(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def texts(body: dict[str, Any]) -> str:
    """All that a request says."""
    return "\n".join(str(message["content"]) for message in body["messages"])
