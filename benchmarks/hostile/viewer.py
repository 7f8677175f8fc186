"""`rlm view` on a machine with other users: its owner looks at runs, another user attacks."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.hostile.parts import Ask, Attack, Part, process, raw, slow_clients

__all__ = ["attacks", "part"]

RUNS = 20
_ADDRESS = re.compile(r"Viewer: (http://[^/]+)/\?token=(\S+)")


class Hostile:
    """The attacks of another user's program, which can reach the port but has no token."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base

    async def _ask(self, method: str, path: str, **options: Any) -> str:
        async with self._session.request(method, f"{self._base}{path}", **options) as response:
            await response.read()
            return str(response.status)

    async def runs(self) -> str:
        return await self._ask("GET", "/api/runs")

    async def forged(self) -> str:
        return await self._ask("GET", "/api/runs", headers={"Authorization": f"Bearer {'x' * 99}"})

    async def forks(self) -> str:
        order = {"run_id": "r", "step": 1, "edited": "x" * 1_000_000}
        return await self._ask("POST", "/api/fork", json=order)

    async def live(self) -> str:
        return await self._ask("GET", "/api/live")

    async def slow(self) -> str:
        host = self._base.removeprefix("http://")
        return await slow_clients(self._base, f"GET / HTTP/1.1\r\nHost: {host}\r\n".encode())

    async def garbage(self) -> str:
        return await raw(self._base, b"GET /" + b"a" * 50_000 + b" HTTP/1.1\r\n\r\n")


async def _recorded(folder: Path) -> Path:
    """Write a log of some offline runs."""
    from rlm import RLM, RLMLogger

    async with RLM("offline/extractive", logger=RLMLogger(log_dir=str(folder / "logs"))) as engine:
        for number in range(RUNS):
            await engine.aask(f"What is number {number}?", "x" * 2_000)
    return folder / "logs"


async def part(folder: Path) -> AsyncGenerator[Part, None]:
    logs = await _recorded(folder)
    with process(["view", str(logs), "--port", "0"], RLM_STATE_DIR=str(folder / "s")) as viewer:
        assert viewer.stderr is not None
        line = viewer.stderr.readline()
        found = _ADDRESS.search(line)
        if found is None:
            raise SystemExit(f"rlm view did not start: {line}{viewer.stderr.read()}")
        base, token = found[1], found[2]

        @asynccontextmanager
        async def other() -> AsyncGenerator[Ask, None]:
            headers = {"Authorization": f"Bearer {token}"}
            async with aiohttp.ClientSession(headers=headers) as session:

                async def ask() -> bool:
                    async with session.get(f"{base}/api/runs") as response:
                        return response.status == 200 and bool((await response.json())["runs"])

                yield ask

        yield Part(base, other)


@asynccontextmanager
async def attacks(base: str, _folder: Path) -> AsyncGenerator[list[Attack], None]:
    async with aiohttp.ClientSession() as session:
        hostile = Hostile(session, base)
        yield [
            Attack("runs", hostile.runs),
            Attack("forged tokens", hostile.forged),
            Attack("forks", hostile.forks),
            Attack("live", hostile.live),
            Attack("slow clients", hostile.slow),
            Attack("garbage", hostile.garbage),
        ]
