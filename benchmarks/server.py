"""Measure `rlm serve` under load: `python benchmarks/server.py`.

A fake model server that answers after 50 ms, `rlm serve`, and this program as all of its clients
are three processes. CPU time is that of the server's own process; cells run in others.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.machine import describe_machine, in_lines, load_average
from benchmarks.processes import descendants

MODEL = "rlm/openai/gpt-x"
SCRIPT = """
[[answers]]
when = "answer with a cell"
reply = '''```repl
FINAL(len(context))
```'''
[[answers]]
when = "never answer"
reply = "never"
delay_seconds = 600
[[answers]]
when = "/(?s).*/"
reply = "one two three four five six seven eight nine ten"
"""
_LISTENING = re.compile(r"Listening at (http://\S+)/v1 ")


class Place(NamedTuple):
    """A running server."""

    pid: int
    base: str


@contextmanager
def _process(
    arguments: list[str], **variables: str
) -> Generator[subprocess.Popen[str], None, None]:
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "rlm", *arguments],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@contextmanager
def serving(folder: Path, latency_ms: float, *options: str) -> Generator[Place, None, None]:
    """Start `rlm serve` in front of a fake model."""
    script = folder / "script.toml"
    script.write_text(SCRIPT, "utf-8")
    fake = ["fake-server", str(script), "--latency-ms", str(latency_ms), "--quiet"]
    with _process(fake) as model:
        assert model.stdout is not None
        variables = {
            "OPENAI_BASE_URL": f"{model.stdout.readline().strip()}/v1",
            "OPENAI_API_KEY": "fake",
            "RLM_STATE_DIR": str(folder / "state"),
        }
        command = ["serve", "--port", "0", "-m", "openai/gpt-x", "--price", "1,1", "--quiet"]
        with _process([*command, *options], **variables) as process:
            assert process.stderr is not None
            found = None
            while found is None:
                line = process.stderr.readline()
                if not line:
                    raise SystemExit("rlm serve did not start")
                found = _LISTENING.match(line)
            yield Place(process.pid, found[1])


# -- asking ---------------------------------------------------------------------------------------


def _body(content: str, *, with_repl: bool = False, stream: bool = True) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    body: dict[str, Any] = {"model": MODEL, "messages": messages, "stream": stream}
    return {**body, "rlm": {"context": "x" * 1_000}} if with_repl else body


async def _ask(session: aiohttp.ClientSession, place: Place, body: dict[str, Any]) -> str:
    """Return the outcome of a request: `ok`, or what was wrong."""
    try:
        async with session.post(f"{place.base}/v1/chat/completions", json=body) as response:
            text = await response.text()
            if response.status == 429:
                return "429" if "Retry-After" in response.headers else "429 without Retry-After"
            if response.status != 200:
                return str(response.status)
            return "ok" if text.endswith("[DONE]\n\n") or not body["stream"] else "cut off"
    except (aiohttp.ClientError, OSError) as error:
        return type(error).__name__


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=300)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)


async def crowd(place: Place, count: int, rounds: int, *, with_repl: bool) -> dict[str, Any]:
    """Run `count` concurrent streams, repeatedly."""
    content = "answer with a cell" if with_repl else "hello"
    body = _body(content, with_repl=with_repl)
    outcomes: Counter[str] = Counter()
    walls, cpus = [], []
    async with _session() as session:
        await asyncio.gather(*(_ask(session, place, body) for _ in range(10)))
        for _ in range(rounds):
            cpu, started = _cpu_seconds(place), time.perf_counter()
            outcomes.update(
                await asyncio.gather(*(_ask(session, place, body) for _ in range(count)))
            )
            walls.append(time.perf_counter() - started)
            cpus.append((_cpu_seconds(place) - cpu) / count)
    return {
        "outcomes": dict(outcomes),
        "seconds for all, median": round(statistics.median(walls), 3),
        "CPU ms a request, median": round(1_000 * statistics.median(cpus), 2),
        "CPU ms a request, each round": [round(1_000 * each, 2) for each in cpus],
    }


def _cpu_seconds(place: Place) -> float:
    """Return user and kernel time of all threads of the server's process."""
    fields = Path(f"/proc/{place.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def overflow(place: Place, count: int) -> dict[str, Any]:
    """Send many more requests than there is room for."""
    async with _session() as session:
        asked = (_ask(session, place, _body("hello", stream=False)) for _ in range(count))
        outcomes = Counter(await asyncio.gather(*asked))
        async with session.get(f"{place.base}/health") as response:
            health = response.status
    return {"outcomes": dict(outcomes), "health afterwards": health}


async def leaving(place: Place, count: int) -> dict[str, Any]:
    """Disconnect clients in the middle of a run, and count what is left."""
    async with _session() as session:
        warm = _body("answer with a cell", with_repl=True)
        await asyncio.gather(*(_ask(session, place, warm) for _ in range(count)))
        await _until(session, place, "rlm_runs_in_flight", 0)
    await asyncio.sleep(3)  # Connections that were kept open are closed now.
    before = _held(place)
    async with _session() as session:
        body = _body("never answer", with_repl=True)
        asked = [asyncio.create_task(_ask(session, place, body)) for _ in range(count)]
        await _until(session, place, "rlm_runs_in_flight", count)
        await asyncio.sleep(1)
        during = _held(place)
        for each in asked:
            each.cancel()
        started = time.perf_counter()
        await _until(session, place, "rlm_runs_in_flight", 0)
        seconds = time.perf_counter() - started
    await asyncio.sleep(5)
    after = _held(place)
    return {
        "clients": count,
        "seconds until no run was left": round(seconds, 3),
        "before": before,
        "during": during,
        "after": after,
    }


async def _until(session: aiohttp.ClientSession, place: Place, name: str, wanted: int) -> None:
    while True:
        async with session.get(f"{place.base}/metrics") as response:
            found = re.search(rf"^{name} (\S+)$", await response.text(), re.MULTILINE)
        if found is not None and float(found[1]) == wanted:
            return
        await asyncio.sleep(0.02)


def _held(place: Place) -> dict[str, int]:
    """Return what a server holds: open files, sockets among them, and processes below it."""
    folder = Path(f"/proc/{place.pid}/fd")
    links = []
    for each in folder.iterdir():
        with suppress(OSError):  # It was closed meanwhile.
            links.append(str(each.readlink()))
    sockets = sum(link.startswith("socket:") for link in links)
    return {"files": len(links), "sockets": sockets, "processes": len(descendants(place.pid))}


# -- all of it ------------------------------------------------------------------------------------


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"machine": describe_machine(), "load before": load_average()}
    with tempfile.TemporaryDirectory() as folder:
        options = ("--max-concurrent-runs", "128")
        with serving(Path(folder), arguments.latency_ms, *options) as place:
            count, rounds = arguments.clients, arguments.rounds
            found["streams, straight to the model"] = await crowd(
                place, count, rounds, with_repl=False
            )
            found["streams, with a REPL"] = await crowd(place, count, rounds, with_repl=True)
    with tempfile.TemporaryDirectory() as folder:
        options = ("--max-concurrent-runs", "8", "--max-queued", "64")
        with serving(Path(folder), arguments.latency_ms, *options) as place:
            found["more than the queue holds (8 + 64)"] = await overflow(place, arguments.flood)
    with tempfile.TemporaryDirectory() as folder:
        options = ("--max-concurrent-runs", "128")
        with serving(Path(folder), arguments.latency_ms, *options) as place:
            found["clients that leave"] = await leaving(place, arguments.leaving)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100, help="streams at once")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flood", type=int, default=1_000, help="requests at once for the queue")
    parser.add_argument("--leaving", type=int, default=30, help="clients that leave")
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--json", type=Path, help="keep the figures in a file")
    arguments = parser.parse_args()
    found = asyncio.run(measure(arguments))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    for name, value in found.items():
        print(f"\n{name}" if isinstance(value, dict) else f"\n{name}: {value}")
        if isinstance(value, dict):
            print(in_lines(value))


if __name__ == "__main__":
    main()
