"""Time the list and the search of the viewer over many runs.

    .venv/bin/python benchmarks/viewer_search.py --runs 10000

It writes logs of made-up runs, indexes them once, and searches over HTTP, all in one process.
"""

import argparse
import asyncio
import json
import platform
import random
import re
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp

from rlm.events import CellEnded, CellOutput, CellStarted, Event, RunEnded, RunStarted
from rlm.logger import encoded
from rlm.messages import Usage
from rlm.records.journal import ContextFolder
from rlm.records.judging import JudgmentChange, Judgments
from rlm.viewer.contexts import Contexts
from rlm.viewer.library import Folder, Library
from rlm.viewer.server import ViewerServer

_PLACE = re.compile(r"\{(\d+)\}")
Get = Callable[[str], Awaitable[Any]]
SEED = 7
VOCABULARY = 30_000
QUERIES = {
    "a word in every text": "the",
    "a frequent word": "{17}",
    "a rare word": "{29001}",
    "two words": "{17} {230}",
    "a phrase": '"def main"',
    "the beginning of a word": "bac",
    "nothing": "zebracrossing",
}


def made_up(folder: Path, runs: int, cells: int) -> int:
    """Write one log per run; word n is about n times rarer than the first."""
    chance = random.Random(SEED)
    words = vocabulary(chance)
    weights = list(accumulate(1 / (number + 1) for number in range(VOCABULARY)))
    size = 0
    for number in range(runs):
        text = iter(chance.choices(words, cum_weights=weights, k=80 * (2 * cells + 2)))
        lines = b"".join(encoded(each) + b"\n" for each in events(number, cells, text))
        (folder / f"run-{number:06}.jsonl").write_bytes(lines)
        size += len(lines)
    return size


def vocabulary(chance: random.Random) -> list[str]:
    """Words of one to five syllables, each unlike every other."""
    syllables = [f"{first}{vowel}" for first in "bcdfghklmnprstvw" for vowel in "aeiou"]
    found: dict[str, None] = {}
    while len(found) < VOCABULARY:
        found["".join(chance.choices(syllables, k=chance.randint(2, 5)))] = None
    return list(found)


def events(number: int, cells: int, text: Iterator[str]) -> list[Event]:
    run_id, at = f"run-{number:06}", 1_700_000_000.0 + 60 * number

    def words(count: int) -> str:
        return "the " + " ".join(islice(text, count))

    found: list[Event] = [
        RunStarted(
            run_id=run_id,
            query=words(12),
            model=f"provider/model-{number % 5}",
            sub_model="provider/small",
            strategy="rlm",
            environment="local",
            context_kind="text",
            context_bytes=100,
            context_sha256="0",
            context_description="a str",
            wall_time=at,
        )
    ]
    for cell in range(cells):
        about: dict[str, Any] = {
            "run_id": run_id,
            "step": cell + 1,
            "cell": 1,
            "wall_time": at + cell,
        }
        code = f"def main():\n    return {words(20)!r}"
        found.append(CellStarted(code=code, **about))
        found.append(CellOutput(stream="stdout", text=words(60), written_chars=400, **about))
        found.append(CellEnded(seconds=0.1, calls=0, **about))
    usage = Usage(1_000, 100, requests=1, cost_usd=0.01)
    ended = RunEnded(
        run_id=run_id,
        step=cells,
        steps=cells,
        stop_reason="answer",
        answer_source="submitted",
        answer=words(30),
        usage=usage,
        seconds=float(cells),
        wall_time=at + cells,
    )
    return [*found, ended]


async def measured(folder: Path, state: Path, runs: int, repeats: int) -> dict[str, Any]:
    library = Library(Folder(folder, "runs"))
    server = ViewerServer(
        library,
        Contexts(ContextFolder(state / "contexts")),
        port=0,
        judgments=Judgments(state),
        index=state / "search" / "index.sqlite",
    )
    headers = {"Authorization": f"Bearer {server.access.token.value}"}
    figures: dict[str, Any] = {}
    began = time.monotonic()
    async with server, aiohttp.ClientSession(headers=headers) as session:
        base = f"http://127.0.0.1:{server.port}/api"

        async def get(path: str) -> Any:
            async with session.get(f"{base}{path}") as response:
                assert response.status == 200, await response.text()
                return json.loads(await response.read())

        while "reading" in await get("/runs"):  # It answers after a second at the latest.
            pass
        figures["first list after seconds"] = round(time.monotonic() - began, 1)
        while "indexing" in (found := await get("/search?q=the&limit=1")):
            assert "problem" not in found, found
            await asyncio.sleep(0.2)
        figures["indexed after seconds"] = round(time.monotonic() - began, 1)
        once = time.monotonic()
        listed = await get("/runs")
        figures["list again, ms"] = round(1_000 * (time.monotonic() - once))
        assert len(listed["runs"]) == runs
        words = vocabulary(random.Random(SEED))
        for name, query in QUERIES.items():
            asked = _PLACE.sub(lambda found: words[int(found[1])], query)
            figures[name] = await _times(get, asked, "", repeats)
        figures["with a condition"] = await _times(
            get, "the", 'model="provider/model-0" and score>0.5', repeats
        )
    return figures


async def _times(get: Get, query: str, where: str, repeats: int) -> dict[str, float]:
    path = f"/search?{urlencode({'q': query, 'where': where, 'limit': 50})}"
    times, busy, found = [], [], 0
    for _ in range(repeats):
        began, used = time.monotonic(), time.process_time()
        answer = await get(path)
        times.append(1_000 * (time.monotonic() - began))
        busy.append(1_000 * (time.process_time() - used))
        found = len(answer["runs"])
    ordered = sorted(times)
    return {
        "runs": found,
        "cpu_ms": round(statistics.median(busy), 1),
        "median_ms": round(statistics.median(times), 1),
        "p95_ms": round(ordered[int(0.95 * (len(ordered) - 1))], 1),
        "max_ms": round(ordered[-1], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--cells", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder, state = Path(place, "logs"), Path(place, "state")
        folder.mkdir()
        size = made_up(folder, options.runs, options.cells)
        judgments = Judgments(state)
        for number in range(0, options.runs, max(1, options.runs // 20)):
            judgments.change(f"run-{number:06}", JudgmentChange(score=number % 2 or 1))
        figures = asyncio.run(measured(folder, state, options.runs, options.repeats))
        figures["logs, MB"] = round(size / 1e6, 1)
        index = sum(each.stat().st_size for each in (state / "search").iterdir())
        figures["index, MB"] = round(index / 1e6, 1)
        figures["python"] = platform.python_version()
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
