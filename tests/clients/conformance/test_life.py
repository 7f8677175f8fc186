"""Connections end when they should: at a cancel, at a stream given up, at close()."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rlm.errors import ModelError
from rlm.testing.fake_server import BEHAVIOURS
from tests.clients.conformance.bench import ENDLESS, ask, asked, serving, timeout, until

DESCRIPTORS = Path("/proc/self/fd")


async def test_cancelling_closes_the_connection(dialect: str, how: str) -> None:
    async with serving(dialect, {"behaviour": "never"}, "fine") as (server, client):
        task = asyncio.create_task(ask(client, how))
        await until(lambda: server.in_flight == 1, "the request arrived")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: server.requests[0].disconnected, "the server saw the client go")
        assert (await ask(client, how)).reply.text == "fine"


async def test_cancelling_in_the_middle_of_a_reply_closes_the_connection(
    dialect: str, how: str
) -> None:
    async with serving(dialect, {**ENDLESS, "behaviour": "drip"}) as (server, client):
        task = asyncio.create_task(ask(client, how))
        await until(lambda: bool(server.requests) and server.requests[0].status == 200, "it began")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: server.requests[0].disconnected, "the server saw the client go")


async def test_closing_a_stream_early_closes_the_connection(dialect: str) -> None:
    async with serving(dialect, ENDLESS) as (server, client):
        stream = client.stream(asked(), timeout_seconds=20)
        assert await anext(stream) == "word "
        await stream.aclose()
        await until(lambda: server.requests[0].disconnected, "the server saw the client go")


async def test_a_timeout_closes_the_connection(dialect: str, how: str) -> None:
    async with serving(dialect, {"behaviour": "never"}) as (server, client):
        await timeout(client, how, once=lambda: server.count == 1)
        await until(lambda: server.requests[0].disconnected, "the server saw the client go")


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="this system does not list open files")
async def test_no_failure_leaves_a_socket_or_task_open(dialect: str, how: str) -> None:
    """Every way to fail, twice; then neither a socket nor a task is left."""
    answers: list[Any] = [{"behaviour": each, "size_bytes": 100} for each in BEHAVIOURS]
    answers += [{"status": 429}, {"status": 500, "behaviour": "cut"}]
    await _all_of(dialect, how, answers[:2])  # what is opened once and stays is not counted
    files, tasks = open_files(), asyncio.all_tasks()
    for _ in range(2):
        await _all_of(dialect, how, answers)
    await until(lambda: open_files() <= files, "every socket was closed")
    await until(lambda: asyncio.all_tasks() <= tasks, "every task ended")


def open_files() -> int:
    return sum(1 for _ in DESCRIPTORS.iterdir())


async def _all_of(dialect: str, how: str, answers: list[Any]) -> None:
    async with serving(dialect, *answers, loop=True) as (_, client):
        for _ in answers:
            try:
                await ask(client, how, seconds=0.1)
            except ModelError:
                continue


async def test_concurrent_requests_get_their_own_answers(dialect: str, how: str) -> None:
    """Each gets its own answer, and the server sees them overlap."""
    rules = [(f"number {n} ", f"answer {n}") for n in range(40)]
    async with serving(dialect, rules=rules, latency_seconds=0.05) as (server, client):
        found = await asyncio.gather(
            *(ask(client, how, asked(f"number {n} please")) for n in range(40))
        )
        assert [each.reply.text for each in found] == [f"answer {n}" for n in range(40)]
        assert server.max_in_flight > 10
