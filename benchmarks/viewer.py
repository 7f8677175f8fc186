"""Measure the viewer with the largest runs: `python benchmarks/viewer.py`.

Two logs are written: a run of 100,000 events, and one of 200 MB over a context of 20 MB. For each,
the time until its answers are there is measured over HTTP, and with --browser the time until
Chromium has drawn each page; that needs the environment of `make test-browser`. No model is called.
"""

import argparse
import asyncio
import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

if not __package__:  # run as a file: its folder is on the path, but not the one above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aiohttp

from benchmarks.machine import describe_machine, in_lines, load_average
from rlm.context import store_context
from rlm.events import (
    CallEnded,
    CallStarted,
    CellEnded,
    CellOutput,
    CellStarted,
    ModelReplied,
    RunEnded,
    RunStarted,
    StepStarted,
)
from rlm.logger import encoded
from rlm.messages import Usage
from rlm.records.journal import ContextFolder
from rlm.viewer.contexts import Contexts
from rlm.viewer.library import Library, OneFile
from rlm.viewer.server import ViewerServer

USED = Usage(900, 40, requests=1, cost_usd=0.001)
RUN = "large"


class Log(NamedTuple):
    """A log, its context, and how large both are."""

    name: str
    path: Path
    context: Path
    events: int
    bytes: int


def words(chars: int) -> str:
    """Lines unlike each other."""
    rnd = random.Random(1)
    known = [f"word{number}" for number in range(5_000)]
    lines: list[str] = []
    size = 0
    while size < chars:
        lines.append(f"{len(lines)}: {' '.join(rnd.choices(known, k=9))}")
        size += len(lines[-1]) + 1
    return "\n".join(lines)[:chars]


def write_log(
    folder: Path, name: str, context: str, prompt_chars: int, is_enough: Callable[[int, int], bool]
) -> Log:
    """Write a run of steps with 200 calls each, until it is large enough."""
    path, file_of_context = folder / f"{name}.jsonl", folder / f"{name}.txt"
    file_of_context.write_text(context, "utf-8")
    rnd, now, step, events, size = random.Random(2), 1_790_000_000.0, 0, 0, 0
    with path.open("wb") as file:

        def put(event: Any) -> None:
            nonlocal events, size
            events += 1
            size += file.write(encoded(event) + b"\n")

        facts: dict[str, Any] = {"query": f"A run of {name}", "model": "m", "sub_model": "s"}
        facts |= {"strategy": "rlm", "environment": "local", "context_kind": "text"}
        facts |= {"context_bytes": len(context.encode()), "context_description": "a str"}
        digest = hashlib.sha256(context.encode()).hexdigest()
        put(RunStarted(run_id=RUN, **facts, context_sha256=digest, wall_time=now))
        while not is_enough(events, size):
            step += 1
            at: dict[str, Any] = {"run_id": RUN, "step": step, "wall_time": now}
            put(StepStarted(**at))
            put(ModelReplied(**at, purpose="step", model="m", text=f"Step {step}.", usage=USED))
            put(CellStarted(**at, cell=1, code="notes = llm_query_batched(prompts)"))
            for number in range(200):
                now += 0.002
                start = rnd.randrange(len(context) - prompt_chars)
                prompt = f"Part {number}: {context[start : start + prompt_chars]}"
                call: dict[str, Any] = {"run_id": RUN, "step": step, "kind": "llm", "model": "s"}
                call["call_id"] = f"{RUN}.{step}.{number}"
                put(CallStarted(**call, prompt=prompt, wall_time=now))
                put(CallEnded(**call, reply="noted", usage=USED, seconds=0.5, wall_time=now + 0.5))
            text = f"output of step {step}"
            put(CellOutput(**at, cell=1, stream="stdout", text=text, written_chars=len(text)))
            put(CellEnded(**at, cell=1, seconds=1.0, calls=200))
        ending: dict[str, Any] = {"stop_reason": "answer", "answer_source": "submitted"}
        ending |= {"answer": "done", "steps": step, "usage": USED, "seconds": now - 1_790_000_000.0}
        put(RunEnded(run_id=RUN, step=step, wall_time=now, **ending))
    return Log(name, path, file_of_context, events, size)


told: dict[str, float] = {}
"""The seconds of the log that is measured, by what they were needed for."""


def tell(what: str, seconds: float) -> None:
    told[what] = round(seconds, 3)
    print(f"{seconds:9.3f} s  {what}", flush=True)


@asynccontextmanager
async def served(log: Log) -> AsyncGenerator[ViewerServer, None]:
    contexts = Contexts(ContextFolder(log.path.parent / "none"), lambda: store_context(log.context))
    async with ViewerServer(Library(OneFile(log.path, log.name)), contexts, port=0) as server:
        yield server


async def over_http(log: Log) -> None:
    """Tell the seconds until each answer was there; the file is read for the first time."""
    started = time.perf_counter()
    async with served(log) as server, aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bearer {server.access.token.value}"}

        async def get(path: str) -> Any:
            address = f"http://127.0.0.1:{server.port}/api/{path}"
            async with session.get(address, headers=headers) as response:
                response.raise_for_status()
                return await response.json()

        listed: dict[str, Any] = {"reading": {}}
        while "reading" in listed:
            listed = await get("runs")  # It answers after a second at the latest.
        tell("started, whole file indexed, listed", time.perf_counter() - started)
        steps = (await get(f"runs/{RUN}"))["run"]["steps"]
        places = {
            "run page": "",
            "a step in the middle": f"/steps/{steps // 2}?limit=500",
            "timeline of 20,000 calls": "/timeline?limit=20000",
            "usage by model, depth and step": "/usage",
            "context: first lines": "/context/rows?at=0",
            "context: a line in the middle": f"/context/rows?line={steps * 10}&above=8",
            "context: words found": "/context/find?q=word4999%20word1",
            "coverage map (who read each line)": "/coverage",
            "coverage map again": "/coverage",
            "words in all texts of the run": f"/search?q=output%20of%20step%20{steps}",
        }
        for name, place in places.items():
            started = time.perf_counter()
            while "mapping" in await get(f"runs/{RUN}{place}"):
                pass  # A map is answered in parts: until it is there, how much of it is done.
            tell(name, time.perf_counter() - started)
        started = time.perf_counter()
        address = f"http://127.0.0.1:{server.port}/api/runs/{RUN}/export/html"
        async with session.get(address, headers=headers) as response:
            size = sum([len(chunk) async for chunk in response.content.iter_any()])
        tell(f"shared as HTML ({size / 1e6:.0f} MB)", time.perf_counter() - started)


def in_browser(log: Log) -> None:
    """Tell the seconds until Chromium has drawn each page; the viewer has read the file."""
    from tests.browser.driving import Visits, chromium, expect
    from tests.browser.viewers import viewing

    pages = {
        "run page": ("", ".step-row"),
        "a step": ("/step/1", ".call-row"),
        "timeline": ("/calls", ".call-table .call-row"),
        "tokens and cost": ("/usage", ".usage-table"),
        "context": ("/context", ".context-row"),
        "coverage": ("/coverage", ".context-map canvas"),
    }
    with viewing(log.path, context=log.context) as url, chromium() as browser:
        visits = Visits(browser)
        page = visits(url)
        expect(page.locator(".run-row, .run-card").first).to_be_visible(timeout=120_000)
        for name, (place, wanted) in pages.items():
            started = time.perf_counter()
            page.evaluate("address => location.hash = address", f"#/run/{RUN}{place}")
            expect(page.locator(wanted).first).to_be_visible(timeout=300_000)
            tell(f"browser: {name}", time.perf_counter() - started)
        visits.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--browser", action="store_true", help="also in Chromium")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the size")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    share = 100 if options.quick else 1
    figures: dict[str, Any] = {"machine": describe_machine(), "load at start": load_average()}
    print(in_lines(figures["machine"]), f"load {figures['load at start']}", sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        many, large = 100_000 // share, 200_000_000 // share
        logs = [
            write_log(Path(folder), "events", words(2_000_000), 200, lambda n, _: n >= many),
            write_log(Path(folder), "bytes", words(20_000_000), 4_000, lambda _, n: n >= large),
        ]
        for log in logs:
            print(
                f"\n{log.events:,} events, {log.bytes / 1e6:.0f} MB, context of "
                f"{log.context.stat().st_size / 1e6:.0f} MB"
            )
            asyncio.run(over_http(log))
            if options.browser:
                in_browser(log)
            size = {"events": log.events, "bytes": log.bytes, "context": log.context.stat().st_size}
            figures[log.name] = {**size, "seconds": dict(told)}
            told.clear()
    figures["load at end"] = load_average()
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
