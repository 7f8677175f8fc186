"""Requests begin in turns between clients: a flood delays only the client that sends it."""

import asyncio
import contextlib
import gc
import socket
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router

from rlm.web.border import Border
from rlm.web.round_robin import RoundRobin
from rlm.web.serving import ACCEPTED_AT_ONCE, READ_AT_ONCE, WebServer, open_socket, serving

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


async def test_a_round_may_take_several_iterations() -> None:
    """Requests in progress need many iterations each, and get them between two of a flood."""
    turns, iterations = RoundRobin(at_once=2, iterations=4), 0
    begun_at: list[int] = []

    def count() -> None:
        nonlocal iterations
        iterations += 1
        if len(begun_at) < 6:
            asyncio.get_running_loop().call_soon(count)

    async def request() -> None:
        await turns.turn_of("a")
        begun_at.append(iterations)

    asyncio.get_running_loop().call_soon(count)
    await asyncio.gather(*(request() for _ in range(6)))
    first, second, third = begun_at[1], begun_at[2], begun_at[4]
    assert begun_at == [first] * 2 + [second] * 2 + [third] * 2
    assert third - second == 4


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
    assert turns._lines == {}


def _named_client(request: Request) -> str:
    client = request.headers["x-client"]
    if client.startswith("refused"):
        raise PermissionError(client)
    return client


def _refused(error: Exception) -> Response:
    return PlainTextResponse(str(error), 403)


async def _hello(_request: Request) -> Response:
    return PlainTextResponse("hello")


class _Connection:
    """A connection that stays open for several requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, url: str) -> "_Connection":
        host, _, port = url.removeprefix("http://").partition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, client: str) -> None:
        self._writer.write(f"GET / HTTP/1.1\r\nHost: x\r\nX-Client: {client}\r\n\r\n".encode())

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self, end: bytes = b"hello") -> bytes:
        return await asyncio.wait_for(self._reader.readuntil(end), 60)

    async def end(self) -> None:
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(self._reader.read(), 60)
        self.close()

    def close(self) -> None:
        self._writer.close()


async def _order_over_http(flood: Sequence[str], other: str) -> list[str]:
    """Send a flood of requests, then another client's; return in which order they are handled."""
    order: list[str] = []

    def error_response(error: Exception) -> Response:
        order.append(str(error))
        return PlainTextResponse("refused", 403)

    async def note(request: Request) -> Response:
        order.append(request.headers["x-client"])
        return PlainTextResponse("handled")

    app = Border(Router([Route("/", note)]), _named_client, error_response)
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


async def test_requests_on_known_connections_are_read_in_turns_between_clients() -> None:
    """A flood that has arrived is not read at once: reading a request takes a third of a ms."""
    reading: list[str] = []
    server = WebServer(Border(Router([Route("/", _hello)]), _named_client, _refused))
    protocol: Any = server.config.http
    read = protocol._read

    def noted(self: Any, data: bytes) -> None:
        reading.append(data.partition(b"X-Client: ")[2].split()[0].decode())
        read(self, data)

    protocol._read = noted
    async with serving(server, open_socket("127.0.0.1", 0)) as url:
        clients = ["hostile"] * FLOOD + ["other"]
        senders = [await _Connection.to(url) for _ in clients]
        for sender, client in zip(senders, clients, strict=True):
            sender.send(client)
            await sender.answer()  # From now on, the server knows whose connection it is.
        reading.clear()
        for sender, client in zip(senders, clients, strict=True):
            sender.send(client)
        for sender in senders:
            await sender.answer()
        for sender in senders:
            sender.close()
    assert sorted(reading) == sorted(clients)
    assert reading.index("other") <= READ_AT_ONCE


async def test_requests_that_wait_to_be_read_are_answered_when_the_server_stops() -> None:
    server = WebServer(Border(Router([Route("/", _hello)]), _named_client, _refused))
    async with serving(server, open_socket("127.0.0.1", 0)) as url:
        senders = [await _Connection.to(url) for _ in range(FLOOD)]
        for sender in senders:
            sender.send("one")
            await sender.answer()
        for sender in senders:
            sender.send("one")
        await senders[0].answer()
        server.stop()
        for sender in senders[1:]:
            await sender.answer()
        for sender in senders:
            sender.close()


async def test_clients_that_send_heads_in_pieces_do_not_delay_new_connections() -> None:
    reading: list[bytes] = []
    server = WebServer(Border(Router([Route("/", _hello)]), _named_client, _refused))
    protocol: Any = server.config.http
    read = protocol._read

    def noted(self: Any, data: bytes) -> None:
        reading.append(data)
        read(self, data)

    protocol._read = noted
    async with serving(server, open_socket("127.0.0.1", 0)) as url:
        slow = [await _Connection.to(url) for _ in range(FLOOD)]
        new = await _Connection.to(url)
        for sender in slow:
            sender.write(b"GET")
        async with asyncio.timeout(60):
            while len(reading) < FLOOD:
                await asyncio.sleep(0.01)
        reading.clear()
        for sender in slow:
            sender.write(b" /")
        new.send("other")
        await new.answer()
        for sender in (*slow, new):
            sender.close()
    place = next(n for n, data in enumerate(reading) if b"other" in data)
    assert place <= 2 * READ_AT_ONCE


async def test_a_refused_body_that_is_not_http_ends_only_its_connection() -> None:
    """Its response has been sent, so that another one, with status 400, is impossible."""
    server = WebServer(Border(Router([Route("/", _hello)]), _named_client, _refused))
    head = b"POST / HTTP/1.1\r\nHost: x\r\nX-Client: refused\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving(server, open_socket("127.0.0.1", 0)) as url:
        senders = [await _Connection.to(url) for _ in range(FLOOD)]
        for sender in senders:
            sender.write(head)
        for sender in senders:
            await sender.answer(b"refused")
        for sender in senders:
            sender.write(b"zz\r\n")
        for sender in senders:
            await sender.end()
    assert not server.server_state.connections


async def test_closed_connections_need_no_garbage_collector() -> None:
    server = WebServer(Border(Router([Route("/", _hello)]), _named_client, _refused))
    protocol: Any = server.config.http
    made, connections = protocol.connection_made, list[weakref.ref[Any]]()

    def noted(self: Any, transport: Any) -> None:
        connections.append(weakref.ref(self))
        made(self, transport)

    protocol.connection_made = noted
    gc.collect()
    gc.disable()
    try:
        async with serving(server, open_socket("127.0.0.1", 0)) as url:
            for _ in range(10):
                sender = await _Connection.to(url)
                sender.send("one")
                await sender.answer()
                sender.close()
            async with asyncio.timeout(60):
                while server.server_state.connections:
                    await asyncio.sleep(0.01)
            left = sum(each() is not None for each in connections)
    finally:
        gc.enable()
    assert (len(connections), left) == (10, 0)


async def test_connections_are_accepted_a_few_at_a_time() -> None:
    """Accepting a flood takes a tenth of a millisecond each, in which no request goes on."""
    iterations, made_at = 0, Counter[int]()

    def count() -> None:
        nonlocal iterations
        iterations += 1
        counting = asyncio.get_running_loop().call_soon(count)
        if made_at.total() >= FLOOD:
            counting.cancel()

    server = WebServer(Border(Router([Route("/", _hello)]), _named_client, _refused))
    protocol: Any = server.config.http
    made = protocol.connection_made

    def noted(self: Any, transport: Any) -> None:
        made_at[iterations] += 1
        made(self, transport)

    protocol.connection_made = noted
    async with serving(server, open_socket("127.0.0.1", 0)) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        senders = [socket.create_connection((host, int(port))) for _ in range(FLOOD)]
        count()
        async with asyncio.timeout(60):
            while made_at.total() < FLOOD:
                await asyncio.sleep(0.01)
        for sender in senders:
            sender.close()
    assert max(made_at.values()) <= ACCEPTED_AT_ONCE + 1  # Some versions of asyncio take one more.


async def test_all_refused_requests_share_their_turns() -> None:
    order = await _order_over_http([f"refused-{number}" for number in range(FLOOD)], "other")
    assert len(order) == FLOOD + 1
    assert order.index("other") < 5
