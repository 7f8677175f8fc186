"""A fake server on its own thread, for synchronous and asynchronous tests."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm.errors import ConfigError
from rlm.testing.fake_server.connection import Connection
from rlm.testing.fake_server.handler import Handler
from rlm.testing.fake_server.requests import Log, Received
from rlm.testing.fake_server.script import Entry, Pattern, Script, read_script

if TYPE_CHECKING:
    import ssl

__all__ = ["FakeServer"]

KEY = "fake"
BACKLOG = 1024


class FakeServer:
    """`with FakeServer(["hello"]) as server:` serves at `server.url`; `async with` does too.

    `script` and `rules` are those of `ScriptedClient`; entries may also be any `Answer`.
    """

    def __init__(
        self,
        script: Iterable[Entry] = (),
        rules: Iterable[tuple[Pattern, Entry]] = (),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        latency_seconds: float = 0.0,
        loop: bool = False,
        tls: "ssl.SSLContext | None" = None,
        on_request: Callable[[Received], None] | None = None,
    ) -> None:
        """`on_request` is called on the server's thread after each request."""
        self._log = Log()
        self._handler = Handler(
            Script(script, rules, loop=loop),
            self._log,
            latency_seconds=latency_seconds,
            on_request=on_request,
        )
        self._host = "127.0.0.1" if host == "localhost" else host
        self._port = port
        self._tls = tls
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._problem: OSError | None = None
        self._address = ""

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> "FakeServer":
        """Return a server of a script file; see `read_script`."""
        return cls(read_script(path), **options)

    def __repr__(self) -> str:
        return f"FakeServer({self._address or 'not started'!r})"

    # -- what it knows -----------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The address: the base URL of an Anthropic or Gemini client."""
        if not self._address:
            raise ConfigError("the server is not started: use it in a with block, or start() it")
        return self._address

    @property
    def openai_url(self) -> str:
        """The base URL of an OpenAI client."""
        return f"{self.url}/v1"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables by which other programs find it."""
        return {
            "OPENAI_BASE_URL": self.openai_url,
            "OPENAI_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": KEY,
            "GEMINI_BASE_URL": self.url,
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GEMINI_API_KEY": KEY,
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": self.url,
            "AWS_BEARER_TOKEN_BEDROCK": KEY,
        }

    @property
    def requests(self) -> list[Received]:
        """The requests in order of arrival; only the latest if there are very many."""
        return self._log.requests

    @property
    def count(self) -> int:
        """The number of requests."""
        return self._log.count

    @property
    def in_flight(self) -> int:
        return self._log.in_flight

    @property
    def max_in_flight(self) -> int:
        """The largest number of requests at the same time."""
        return self._log.max_in_flight

    # -- its life ----------------------------------------------------------------------------

    def start(self) -> "FakeServer":
        """Start listening; raise OSError if the port is taken."""
        if self._thread is not None:
            raise ConfigError("the server is already running")
        self._started.clear()
        self._handler.closing = False
        self._thread = threading.Thread(target=self._serve, name="rlm-fake-server", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._problem is not None:
            self._thread.join()
            self._thread, problem, self._problem = None, self._problem, None
            raise problem
        return self

    def stop(self) -> None:
        """Stop listening and drop every connection."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._handler.closing = True
            self._loop.call_soon_threadsafe(self._stopping.set)
            thread.join()

    def __enter__(self) -> "FakeServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> "FakeServer":
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def _serve(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        numbers, opened = itertools.count(1), set[Connection]()
        try:
            server = await self._loop.create_server(
                lambda: Connection(next(numbers), self._handler, opened),
                self._host,
                self._port,
                ssl=self._tls,
                backlog=BACKLOG,
            )
        except OSError as error:
            self._problem = error
            self._started.set()
            return
        host, self._port = server.sockets[0].getsockname()[:2]
        scheme = "http" if self._tls is None else "https"
        self._address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._port}"
        self._started.set()
        await self._stopping.wait()
        server.close()
        left = [connection.task for connection in opened]
        for connection in list(opened):
            connection.drop()
        await asyncio.gather(*left, return_exceptions=True)
