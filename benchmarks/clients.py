"""Measure the cost of calling a model over HTTP: `python benchmarks/clients.py`.

The server (chat_server.py) is a separate process that answers after a set time, so the time above
that is ours. For comparison: the HTTP libraries that are installed, each doing the bare minimum.
"""

import argparse
import asyncio
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.machine import describe_machine, in_lines
from rlm import RLM
from rlm.clients import OpenAICompatClient
from rlm.limits import Limits
from rlm.messages import Message, Request
from rlm.testing.scripted import ScriptedClient

KEY = "sk-benchmark-0123456789"
PROMPT = "What is the capital of France? Answer in one word."
ASK_ALL = "replies = llm_query_batched(['{prompt}'] * {count})\nFINAL(len(set(replies)))"
ASK_EACH = """\
import time
started = time.perf_counter()
for _ in range({count}):
    llm_query('{prompt}')
FINAL((time.perf_counter() - started) / {count})
"""
Ask = Callable[[], Awaitable[str]]


class Sample(NamedTuple):
    """One pass: seconds of wall time, and of this process's own CPU time."""

    wall: float
    cpu: float


@contextmanager
def server(delay_ms: float) -> Generator[str, None, None]:
    """Start a server and yield its base URL."""
    script = Path(__file__).with_name("chat_server.py")
    process = subprocess.Popen(  # noqa: S603 - our own script
        [sys.executable, str(script), str(delay_ms)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.communicate()


# -- who asks -------------------------------------------------------------------------------------

_BODY = {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 100}
_HEADERS = {"Authorization": f"Bearer {KEY}"}


@asynccontextmanager
async def rlm_client(url: str) -> AsyncGenerator[Ask, None]:
    client = OpenAICompatClient(url, KEY)
    request = Request(model="m", messages=(Message("user", PROMPT),), max_output_tokens=100)

    async def ask() -> str:
        return (await client.complete(request, timeout_seconds=60)).text

    yield ask
    await client.close()


@asynccontextmanager
async def bare_aiohttp(url: str) -> AsyncGenerator[Ask, None]:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask() -> str:
            async with session.post(
                f"{url}/chat/completions", json=_BODY, headers=_HEADERS
            ) as response:
                return _text(await response.json())

        yield ask


@asynccontextmanager
async def bare_httpx(url: str, module: str = "httpx") -> AsyncGenerator[Ask, None]:
    httpx: Any = importlib.import_module(module)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=1_000)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:

        async def ask() -> str:
            response = await client.post(f"{url}/chat/completions", json=_BODY, headers=_HEADERS)
            return _text(response.json())

        yield ask


@asynccontextmanager
async def bare_httpx2(url: str) -> AsyncGenerator[Ask, None]:
    async with bare_httpx(url, "httpx2") as ask:
        yield ask


def _text(payload: Any) -> str:
    return str(payload["choices"][0]["message"]["content"])


ASKERS = {
    "rlm": ("aiohttp", rlm_client),
    "aiohttp": ("aiohttp", bare_aiohttp),
    "httpx": ("httpx", bare_httpx),
    "httpx2": ("httpx2", bare_httpx2),
}


# -- what is measured -----------------------------------------------------------------------------


async def many_at_once(ask: Ask, calls: int, at_once: int) -> Sample:
    """Make many calls with a limited number in flight."""
    places = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with places:
            assert await ask() == "Paris"

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one() for _ in range(calls)))
    return Sample(time.perf_counter() - wall, time.process_time() - cpu)


async def one_after_the_other(ask: Ask, calls: int) -> Sample:
    await ask()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        await ask()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Sample(wall / calls, cpu / calls)


async def from_a_cell(url: str, cell: str, at_once: int) -> tuple[Sample, str]:
    """Make the calls through the whole engine: a scripted root model, a sandboxed cell, HTTP."""
    root = ScriptedClient([f"```repl\n{cell}\n```"])
    one = RLM(
        root,
        sub_model="openai-compatible/m",
        client_options={"openai-compatible/m": {"base_url": url, "api_key": KEY}},
        windows={"openai-compatible/m": 100_000},
        prices={"openai-compatible/m": (1.0, 1.0)},
        limits=Limits(max_calls=100_000, max_concurrent_calls=at_once, max_seconds=600),
    )
    wall, cpu = time.perf_counter(), time.process_time()
    result = await one.aask("How many?", "nothing")
    sample = Sample(time.perf_counter() - wall, time.process_time() - cpu)
    await one.aclose()
    return sample, str(result.answer)


async def measure(calls: int, at_once: int, delay_ms: float, rounds: int) -> dict[str, Any]:
    names = [name for name, (module, _) in ASKERS.items() if importlib.util.find_spec(module)]
    batch: dict[str, list[Sample]] = {name: [] for name in (*names, "rlm, from a cell")}
    single: dict[str, list[Sample]] = {name: [] for name in (*names, "rlm, from a cell")}
    with server(delay_ms) as url:
        for _ in range(rounds):
            for name in names:
                async with ASKERS[name][1](url) as ask:
                    batch[name].append(await many_at_once(ask, calls, at_once))
            cell = ASK_ALL.format(prompt=PROMPT, count=calls)
            sample, answer = await from_a_cell(url, cell, at_once)
            assert answer == "1", answer
            batch["rlm, from a cell"].append(sample)
    with server(0) as url:
        for _ in range(rounds):
            for name in names:
                async with ASKERS[name][1](url) as ask:
                    single[name].append(await one_after_the_other(ask, calls))
            cell = ASK_EACH.format(prompt=PROMPT, count=calls)
            sample, answer = await from_a_cell(url, cell, at_once)
            single["rlm, from a cell"].append(Sample(float(answer), sample.cpu / calls))
    return {"batch": batch, "single": single}


def table(title: str, unit: str, factor: float, rows: dict[str, list[Sample]]) -> str:
    lines = [f"{title:<48}{'median':>9}{'fastest':>9}{'own CPU':>9}"]
    for name, samples in rows.items():
        wall = sorted(sample.wall for sample in samples)
        cpu = statistics.median(sample.cpu for sample in samples)
        figures = (statistics.median(wall), wall[0], cpu)
        numbers = "".join(f"{figure * factor:>9.2f}" for figure in figures)
        lines.append(f"  {name:<46}{numbers} {unit}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--at-once", type=int, default=128, help="calls on their way")
    parser.add_argument("--delay-ms", type=float, default=50, help="what the server takes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print samples instead of tables")
    given = parser.parse_args()
    found = asyncio.run(measure(given.calls, given.at_once, given.delay_ms, given.rounds))
    if given.json:
        print(json.dumps({**found, "machine": describe_machine()}))
        return
    title = f"{given.calls:,} calls x {given.delay_ms:g} ms, {given.at_once} at once"
    print(table(title, "s", 1, found["batch"]))
    print(table("one call after the other, server instant", "ms", 1_000, found["single"]))
    print(in_lines(describe_machine()))


if __name__ == "__main__":
    main()
