"""Searches, each in a process of its own that is killed when its time is up."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct

from rlm.gateway.detached import Detached
from rlm.gateway.paths import Root
from rlm.gateway.refusals import Refused
from rlm.gateway.turns import Turns

__all__ = ["Hit", "Search", "Searched", "Searcher"]

MOST_HITS = 50
MOST_LINE_BYTES = 1 << 20
_PACKAGES = str(Path(__file__).resolve().parents[2])
_START = "import sys; sys.path.insert(0, sys.argv[1]); from rlm.gateway import search_worker as w"
_COMMAND = (sys.executable, "-I", "-c", f"{_START}; w.main()", _PACKAGES)
"""This very package, wherever it is, and nothing that the environment adds."""


class Search(Struct, frozen=True, kw_only=True):
    """What is wanted. `ranked`: the best lines for some words; otherwise a regular expression.

    `files` are the only ones to look at; otherwise all below a folder whose path matches `names`.
    `after` is the last hit of the page before.
    """

    query: str
    ranked: bool = True
    ignore_case: bool = False
    most: int = 20
    below: tuple[str, ...] = ()
    files: tuple[tuple[str, ...], ...] | None = None
    names: str = ""
    ignored: bool = False
    after: tuple[tuple[str, ...], int] | None = None


class Hit(Struct, frozen=True):
    """A line that matches, cut to a readable length."""

    parts: tuple[str, ...]
    line: int
    text: str
    score: float | None = None


class Searched(Struct, frozen=True):
    """What was found; not `complete` if the time was up before all files were seen."""

    hits: tuple[Hit, ...]
    complete: bool


class Searcher:
    """Runs searches; keeps one process ready, because starting one takes longer than most use."""

    def __init__(self, *, seconds: float = 10.0, most_at_once: int = 4) -> None:
        self._seconds = seconds
        self._places = asyncio.Semaphore(most_at_once)
        self._turns = Turns(max(1, most_at_once // 2))
        self._ready: asyncio.Task[asyncio.subprocess.Process] | None = None
        self._detached = Detached()

    def prepare(self) -> None:
        """Start the process of the next search."""
        if self._ready is None:
            self._ready = self._detached.start(_started())

    async def search(self, root: Root, wanted: Search, owner: str = "") -> Searched:
        """All hits up to the number that is wanted, or those that were found in time.

        An owner has half of the places, so that nobody's patterns keep all others waiting.
        """
        return await self._detached.run(self._search(root, wanted, owner))

    async def _search(self, root: Root, wanted: Search, owner: str) -> Searched:
        async with self._turns.of(owner), self._places:
            process = await self._take()
            hits: list[Hit] = []
            try:
                async with asyncio.timeout(self._seconds):
                    await _collect(process, _job(root, wanted), hits)
            except TimeoutError:
                return Searched(tuple(hits), complete=False)
            finally:
                await _ended(process)
            return Searched(tuple(hits), complete=True)

    async def close(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            await _ended(await ready)
        await self._detached.close()

    async def _take(self) -> asyncio.subprocess.Process:
        ready, self._ready = self._ready, None
        process = await (ready or _started())
        self.prepare()
        return process


async def _started() -> asyncio.subprocess.Process:
    """A process that waits for its job: what Python takes to start is not the search's time."""
    process = await asyncio.create_subprocess_exec(
        *_COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
        limit=MOST_LINE_BYTES,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        await process.stdout.readline()
    except BaseException:
        await _ended(process)
        raise
    return process


async def _collect(process: asyncio.subprocess.Process, job: bytes, hits: list[Hit]) -> None:
    """Add hits as they are told, so that those of a search that is stopped are not lost."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(job)
    await process.stdin.drain()
    while line := await process.stdout.readline():
        message = json.loads(line)
        if "refused" in message:
            raise Refused(message["refused"])
        if "done" in message:
            return
        parts, score = tuple(message["parts"]), message.get("score")
        hits.append(Hit(parts, message["line"], message["text"], score))
    raise Refused("the search failed; try a simpler pattern, or fewer files")


async def _ended(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.communicate()


def _job(root: Root, wanted: Search) -> bytes:
    job: dict[str, Any] = {
        "folder": str(root.path),
        "identity": root.identity,
        "root": root.name,
        "denied": root.denials.patterns,
        "query": wanted.query,
        "ranked": wanted.ranked,
        "ignore_case": wanted.ignore_case,
        "most": max(1, min(wanted.most, MOST_HITS)),
        "below": wanted.below,
        "files": wanted.files,
        "names": wanted.names,
        "ignored": wanted.ignored,
        "after": wanted.after,
    }
    return json.dumps(job).encode() + b"\n"
