"""Searches, each in a process of its own that is killed when its time is up."""

import asyncio
from typing import Any

from msgspec import Struct

from rlm._util.limited import JobLimits, Jobs
from rlm._util.limited import owner as owner_of_jobs
from rlm.gateway.detached import Detached
from rlm.gateway.paths import Root
from rlm.gateway.refusals import Refused

__all__ = ["Hit", "Search", "Searched", "Searcher"]

MOST_HITS = 50


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
    """Runs searches; keeps one process ready, because making one takes longer than most use."""

    def __init__(self, *, seconds: float = 10.0, most_at_once: int = 4) -> None:
        limits = JobLimits(seconds=seconds, memory_bytes=512 << 20, output_bytes=16 << 20)
        self._jobs = Jobs("rlm.gateway.search_worker", limits, at_once=most_at_once)
        self._detached = Detached()

    def prepare(self) -> None:
        """Have a process ready for the first search."""
        self._jobs.prepare()

    async def search(self, root: Root, wanted: Search, owner: str = "") -> Searched:
        """All hits up to the number that is wanted, or those that were found in time.

        An owner has half of the places, so that nobody's patterns keep all others waiting.
        """
        return await self._detached.run(self._search(root, wanted, owner))

    async def _search(self, root: Root, wanted: Search, owner: str) -> Searched:
        owner_of_jobs.set(owner)
        found = await self._jobs.acollect("search", _job(root, wanted))
        if found.stopped is not None and found.stopped.reason == "crash":
            raise Refused("the search failed; try a simpler pattern, or fewer files")
        hits = []
        for each in found.items:
            if "refused" in each:
                raise Refused(each["refused"])
            hits.append(Hit(tuple(each["parts"]), each["line"], each["text"], each.get("score")))
        return Searched(tuple(hits), complete=found.stopped is None)

    async def close(self) -> None:
        await self._detached.close()
        await asyncio.to_thread(self._jobs.close)


def _job(root: Root, wanted: Search) -> dict[str, Any]:
    return {
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
