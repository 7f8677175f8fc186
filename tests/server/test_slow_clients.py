"""Clients that are slow, on purpose or not: they hold nothing for long."""

import asyncio
import json
from pathlib import Path

import pytest

from rlm.limits import Limits
from rlm.testing.scripted import ScriptedClient
from rlm.web import serving
from tests.server.serving import WITH_REPL, Client, Held, server


async def _connect(client: Client) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = client.base.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


def _head(client: Client, length: int) -> bytes:
    host = client.base.removeprefix("http://")
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


async def test_a_body_that_does_not_arrive_times_out(tmp_path: Path) -> None:
    async with server(tmp_path, body_seconds=0.2) as client:
        reader, writer = await _connect(client)
        writer.write(_head(client, 100) + b"{")
        async with asyncio.timeout(60):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()


async def test_request_headers_that_do_not_arrive_time_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.2)
    async with server(tmp_path) as client:
        for said in (b"", b"POST /v1/chat", _head(client, 5)[:-2]):
            reader, writer = await _connect(client)
            writer.write(said)
            async with asyncio.timeout(60):
                assert await reader.read() == b""
            writer.close()
        assert (await client.get("/health")).status == 200


async def test_the_rest_of_a_refused_body_may_arrive_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that send before they read would otherwise see a broken connection, not the 429."""
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.2)
    model = Held(rules=[("", "done")])
    async with server(tmp_path, model, max_concurrent_runs=1, max_queued=0) as client:
        running = asyncio.create_task(client.chat("hi"))
        while not model.waiting:
            await asyncio.sleep(0.01)
        reader, writer = await _connect(client)
        writer.write(_head(client, 5) + b"{")
        async with asyncio.timeout(60):
            refused = await reader.readuntil(b"\r\n\r\n")
            for _ in range(3):
                await asyncio.sleep(0.3)
                writer.write(b" ")
            writer.write(b"}GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            rest = await reader.read()
        writer.close()
        model.gate.set()
        await running
    assert refused.startswith(b"HTTP/1.1 429")
    assert rest.count(b"HTTP/1.1 ") == 1, "the connection is still of use"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_does_not_read_its_answer_is_disconnected(
    tmp_path: Path, stream: bool
) -> None:
    model, limits = ScriptedClient(["x" * 30_000_000]), Limits(step_output_tokens=10**8)
    async with server(tmp_path, model, send_seconds=0.3, limits=limits) as client:
        reader, writer = await _connect(client)
        messages = [{"role": "user", "content": "much"}]
        asked = {"model": WITH_REPL, "messages": messages, "stream": stream}
        body = json.dumps(asked).encode()
        writer.write(_head(client, len(body)) + body)
        service = client.service
        async with asyncio.timeout(60):
            while not model.requests or service.admission.running or service.jobs.running:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3 if stream else 1.0)
            try:
                whole = await reader.read()
            except ConnectionError:
                whole = b""
        assert len(whole) < 30_000_000
        writer.close()
