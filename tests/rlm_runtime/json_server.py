"""A real HTTP server that takes any JSON and answers with what a function says, on loopback."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Answer = Callable[[dict[str, Any]], tuple[int, object]]


class Received(NamedTuple):
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class JsonServer(NamedTuple):
    url: str
    requests: list[Received]


@contextmanager
def json_server(answer: Answer) -> Generator[JsonServer, None, None]:
    """Serve until the block ends; `answer` makes a status and a payload of a request's body."""
    requests: list[Received] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            requests.append(Received(self.path, headers, body))
            status, payload = answer(body)
            data = json.dumps(payload).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield JsonServer(f"http://127.0.0.1:{server.server_port}", requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
