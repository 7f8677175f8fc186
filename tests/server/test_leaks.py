"""After many clients disconnected, no additional run, process, socket or file remains."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from rlm.testing.fake_server import Answer, FakeServer
from tests.processes import descendants
from tests.server.command import MODEL, Served, served
from tests.server.serving import submits

pytestmark = pytest.mark.heavy

CLIENTS = 12
RULES = [
    Answer(when="answer now", reply=submits("done")),
    Answer(when="never answer", reply="never", delay_seconds=600.0),
]


def _held(one: Served) -> tuple[int, int]:
    """Open files, pipes and sockets of a server, and processes below it."""
    files = list(Path(f"/proc/{one.process.pid}/fd").iterdir())
    return len(files), len(descendants(one.process.pid))


async def _stream(session: aiohttp.ClientSession, one: Served, content: str) -> str:
    messages = [{"role": "user", "content": content}]
    body = {"model": MODEL, "messages": messages, "stream": True, "rlm": {"context": "x"}}
    async with session.post(f"{one.base}/v1/chat/completions", json=body) as response:
        assert response.status == 200
        return await response.text()


async def _runs_are(session: aiohttp.ClientSession, one: Served, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            async with session.get(f"{one.base}/metrics") as response:
                if f"\nrlm_runs_in_flight {float(count)}\n" in await response.text():
                    return
            await asyncio.sleep(0.02)


async def _settled(one: Served, most: tuple[int, int]) -> tuple[int, int]:
    """What is held when what was closed is really gone; more than before does not go away."""
    now = _held(one)
    for _ in range(300):
        if now[0] <= most[0] and now[1] <= most[1]:
            break
        await asyncio.sleep(0.1)
        now = _held(one)
    return now


async def test_clients_that_disconnect_leave_nothing_behind(tmp_path: Path) -> None:
    with FakeServer(RULES) as model, served(tmp_path, model, "--quiet") as one:
        async with aiohttp.ClientSession() as session:
            answers = [_stream(session, one, "answer now") for _ in range(CLIENTS)]
            assert all("[DONE]" in text for text in await asyncio.gather(*answers))
            await _runs_are(session, one, 0)
        await asyncio.sleep(2)  # The sessions that are kept ready have been made.
        before = _held(one)
        for _ in range(3):
            async with aiohttp.ClientSession() as session:
                asked = [
                    asyncio.create_task(_stream(session, one, "never answer"))
                    for _ in range(CLIENTS)
                ]
                await _runs_are(session, one, CLIENTS)
                for each in asked:
                    each.cancel()
                await asyncio.gather(*asked, return_exceptions=True)
                await _runs_are(session, one, 0)
        after = await _settled(one, before)
        assert after[0] <= before[0], (before, after)
        assert after[1] <= before[1], (before, after)
        assert model.in_flight == 0
        assert await asyncio.to_thread(one.end) == 0
    assert not [line for line in one.lines if "Traceback" in line]
