"""Tests of the built site in a real browser: `make test-site` builds it and has the browser."""

import importlib.util
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from tests.shape.tree import ROOT

HTML = ROOT / "build" / "site" / "html"
is_ready = importlib.util.find_spec("playwright") is not None and (HTML / "index.html").exists()
collect_ignore_glob = [] if is_ready else ["test_in_browser.py"]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="session")
def site_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(HTML)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from tests.browser.driving import chromium

    with chromium() as made:
        yield made
