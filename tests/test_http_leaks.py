"""Many runs over real HTTP: no socket, task or process is left, whatever became of the calls."""

import asyncio
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM
from rlm.environments.local import zygotes
from rlm.limits import Limits
from tests.endpoint import Endpoint, endpoint
from tests.environments.footprint import descendants

CELL = """```repl
replies = llm_query_batched([f"{context} {n}" for n in range(4)])
FINAL(" ".join(map(str, replies)))
```"""
KEPT_READY = 2


def answer(body: dict[str, Any]) -> str:
    return (
        CELL if "REPL" in str(body["messages"][0]["content"]) else body["messages"][-1]["content"]
    )


def sockets() -> int:
    """Sockets of this process that are connected over TCP."""
    mine = {str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    inodes = {name[len("socket:[") : -1] for name in mine if name.startswith("socket:[")}
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    listening = "0A"
    return sum(
        fields[9] in inodes and fields[3] != listening
        for fields in (line.split() for line in lines)
    )


async def run_many(server: Endpoint, count: int, at_once: int) -> None:
    places = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with places:
            engine = RLM(
                "openai-compatible/m",
                client_options={"openai-compatible/m": {"base_url": server.url}},
                limits=Limits(max_seconds=120),
            )
            result = await engine.aask("Repeat it.", f"run {number}")
            assert result.answer == " ".join(f"run {number} {n}" for n in range(4))
            await engine.aclose()

    await asyncio.gather(*(one(number) for number in range(count)))


async def all_gone(processes: int) -> None:
    """What has been closed may take a moment to be gone."""
    async with asyncio.timeout(30):
        while len(descendants(os.getpid())) > processes + KEPT_READY:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.heavy)])
async def test_runs_leave_nothing_behind(count: int) -> None:
    zygotes.close_all()  # One that reaches its thousandth session here would get a successor.
    with endpoint(answer) as server:
        await run_many(server, 1, 1)  # imports what is imported once, starts what is kept
        gc.collect()
        before = len(asyncio.all_tasks())
        processes = len(descendants(os.getpid()))
        await run_many(server, count, 10)
        await asyncio.sleep(0)
        gc.collect()
        assert len(asyncio.all_tasks()) == before
        await all_gone(processes)
        assert len(server.bodies) == 5 * (count + 1)
    assert sockets() == 0
