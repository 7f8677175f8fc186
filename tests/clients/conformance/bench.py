"""What every test of the suite needs: clients of each dialect, both ways of asking, an outcome."""

import asyncio
import traceback
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any, NamedTuple
from unittest import mock

import pytest

from rlm.clients._dialect import HttpClient
from rlm.errors import ModelError
from rlm.messages import Message, Reply, Request
from rlm.testing.fake_server import FakeServer
from rlm.wiring.registry import CLIENTS

KEY = "sk-conformance-0123456789-secret"
HEADER = "custom-header-value-98765"
MODEL = "m-1"
SECONDS = 20.0
"""Far more than any request here takes; a test that means a time-out says a small one."""

ENDLESS = {"reply": "word " * 200, "pause_seconds": 0.01}
"""A reply that takes seconds if it drips."""

WAYS = ("complete", "stream")
DIALECTS = tuple(CLIENTS)


def client_of(
    dialect: str, server: FakeServer, *, url: str | None = None, api_key: str | None = KEY
) -> HttpClient:
    """A client of that dialect, with a key and a header of its own, both secret."""
    module, name = next(home for known, home in CLIENTS.items() if known == dialect)
    base = {"chat": "/v1", "responses": "/v1"}.get(dialect, "")
    made: HttpClient = getattr(import_module(module), name)(
        (url or server.url) + base, api_key, headers={"X-Custom": HEADER}, key_variable="MY_KEY"
    )
    return made


def asked(text: str = "hi", **facts: Any) -> Request:
    given: dict[str, Any] = {
        "model": MODEL,
        "messages": (Message("user", text),),
        "max_output_tokens": 4_000,
    }
    return Request(**{**given, **facts})


class Outcome(NamedTuple):
    """What came of a request: the pieces of a stream, if it was one, and the whole reply."""

    pieces: list[str]
    reply: Reply


async def ask(
    client: HttpClient, how: str, request: Request | None = None, *, seconds: float = SECONDS
) -> Outcome:
    """One request, one way or the other. A stream is checked for its form."""
    request = request or asked()
    if how == "complete":
        return Outcome([], await client.complete(request, timeout_seconds=seconds))
    parts = [part async for part in client.stream(request, timeout_seconds=seconds)]
    *pieces, reply = parts
    assert isinstance(reply, Reply), "a stream ends with the whole reply"
    texts = [piece for piece in pieces if isinstance(piece, str)]
    assert len(texts) == len(pieces), "and has texts alone before it"
    return Outcome(texts, reply)


async def failure(
    client: HttpClient, how: str, request: Request | None = None, *, seconds: float = SECONDS
) -> ModelError:
    """The error of one request, in one line, naming the model, with no secret anywhere in it."""
    with pytest.raises(ModelError) as caught:
        await ask(client, how, request, seconds=seconds)
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(client)
    assert KEY not in shown
    assert HEADER not in shown
    assert error.__cause__ is None, "an error of aiohttp may hold the request's headers"
    assert "\n" not in str(error)
    assert MODEL in str(error)
    return error


async def timeout(client: HttpClient, how: str, *, once: Callable[[], bool]) -> ModelError:
    """The error of a request whose time runs out once the server has come this far."""
    failing = asyncio.create_task(failure(client, how, seconds=SECONDS))
    await until(once, "the server has come that far")
    with clock_moved(by=2 * SECONDS):
        return await failing


@contextmanager
def clock_moved(*, by: float) -> Generator[None, None, None]:
    """Let the event loop believe that `by` seconds have passed."""
    loop = asyncio.get_running_loop()
    real = loop.time

    def later() -> float:
        return real() + by

    with mock.patch.object(loop, "time", later):
        yield


@asynccontextmanager
async def serving(
    dialect: str, *answers: Any, **options: Any
) -> AsyncGenerator[tuple[FakeServer, HttpClient], None]:
    """A server with these answers, and a client of it; both are gone afterwards."""
    async with FakeServer(answers, **options) as server:
        client = client_of(dialect, server)
        try:
            yield server, client
        finally:
            await client.close()


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something that another thread does is done."""
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"it did not happen: {what}")
