"""A web server of this machine whose answers a test decides, and that notes requests."""

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


class Answer(NamedTuple):
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})
    cut: int = 0
    """How many bytes of the body are announced and not sent."""


class WebServer:
    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answer: Callable[[Asked], Answer] = lambda _: Answer(404)
        self.url = ""

    def pages(self, **pages: bytes) -> None:
        """Answer with these bodies by path, with their hash as ETag."""

        def answer(asked: Asked) -> Answer:
            body = pages.get(asked.path.strip("/").partition("?")[0])
            return Answer(404) if body is None else Answer(200, body, {"ETag": f'"{hash(body)}"'})

        self.answer = answer


@contextmanager
def web_server() -> Generator[WebServer, None, None]:
    state = WebServer()

    class Handler(BaseHTTPRequestHandler):
        def handle_all(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            asked = Asked(self.command, self.path, dict(self.headers.items()), body)
            state.asked.append(asked)
            answer = state.answer(asked)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body[: len(answer.body) - answer.cut])

        def __getattr__(self, name: str) -> Any:
            if name in ("do_GET", "do_HEAD", "do_POST"):
                return self.handle_all
            raise AttributeError(name)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
