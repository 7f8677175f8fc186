"""Requests begin in turns between clients: a flood delays only the client that sends it."""

import asyncio
import socket
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router

from rlm.web.border import Border
from rlm.web.round_robin import RoundRobin
from rlm.web.serving import WebServer, open_socket, serving

FLOOD = 50


async def _begun(*clients: str) -> list[str]:
    """Let requests of these clients arrive at the same time; return in which order they began."""
    turns, order = RoundRobin(), []

    async def request(client: str) -> None:
        await turns.turn_of(client)
        order.append(client)

    await asyncio.gather(*map(request, clients))
    return order


async def test_clients_take_turns() -> None:
    assert await _begun(*"aaaabbc") == list("abcabaa")


async def test_a_client_alone_begins_no_two_requests_in_one_iteration() -> None:
    turns, iterations = RoundRobin(), 0
    begun_at: list[int] = []

    def count() -> None:
        nonlocal iterations
        iterations += 1
        if len(begun_at) < 5:
            asyncio.get_running_loop().call_soon(count)

    async def request() -> None:
        await turns.turn_of("a")
        begun_at.append(iterations)

    asyncio.get_running_loop().call_soon(count)
    await asyncio.gather(*(request() for _ in range(5)))
    assert len(set(begun_at)) == 5


async def test_a_request_that_is_cancelled_in_line_takes_no_turn() -> None:
    turns, order = RoundRobin(), []

    async def request(number: int) -> None:
        await turns.turn_of("a")
        order.append(number)

    tasks = [asyncio.create_task(request(number)) for number in range(6)]
    await asyncio.sleep(0)
    for task in tasks[2:5]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1, 5]


async def test_nothing_is_kept_of_clients_without_requests() -> None:
    turns = RoundRobin()
    await asyncio.gather(*(turns.turn_of(number % 7) for number in range(50)))
    await asyncio.sleep(0)
    assert turns._waiting == {}


async def _order_over_http(flood: Sequence[str], other: str) -> list[str]:
    """Send a flood of requests, then another client's; return in which order they are handled."""
    order: list[str] = []

    def admit(request: Request) -> str:
        client = request.headers["x-client"]
        if client.startswith("refused"):
            raise PermissionError(client)
        return client

    def error_response(error: Exception) -> Response:
        order.append(str(error))
        return PlainTextResponse("refused", 403)

    async def note(request: Request) -> Response:
        order.append(request.headers["x-client"])
        return PlainTextResponse("handled")

    app = Border(Router([Route("/", note)]), admit, error_response)
    async with serving(WebServer(app), open_socket("127.0.0.1", 0)) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        senders = [socket.create_connection((host, int(port))) for _ in range(len(flood) + 1)]
        await asyncio.sleep(0.1)  # The server accepts them all.
        for sender, client in zip(senders, [*flood, other], strict=True):
            sender.sendall(f"GET / HTTP/1.1\r\nHost: x\r\nX-Client: {client}\r\n\r\n".encode())
        async with asyncio.timeout(60):
            while len(order) < len(senders):
                await asyncio.sleep(0.01)
        for sender in senders:
            sender.close()
    return order


async def test_a_flood_over_http_delays_only_its_sender() -> None:
    order = await _order_over_http(["hostile"] * FLOOD, "other")
    assert order.count("hostile") == FLOOD
    assert order.index("other") < 5


async def test_all_refused_requests_share_their_turns() -> None:
    order = await _order_over_http([f"refused-{number}" for number in range(FLOOD)], "other")
    assert len(order) == FLOOD + 1
    assert order.index("other") < 5
