"""`rlm_search`: where to search, the processes that do it, and how much of the result to show."""

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from rlm._util.limited import JobLimits, Jobs
from rlm._util.limited import owner as owner_of_jobs
from rlm.gateway.errors import Refused
from rlm.gateway.files import MAX_BYTES
from rlm.gateway.ledger import Answer, Ledger, cursor_of, read_cursor
from rlm.gateway.paths import Root, parts_of
from rlm.gateway.provenance import digest
from rlm.gateway.sessions import GatewaySession
from rlm.gateway.tasks import BackgroundTasks

__all__ = ["Finder", "Hit", "Place", "Search", "Searched", "Searcher"]

MAX_HITS = 50


class Search(Struct, frozen=True, kw_only=True):
    """What to search for. `ranked`: the best lines for some words; otherwise a regular expression.

    With `files`, only those are searched; otherwise all below a folder whose path matches `names`.
    `after` is the last hit of the previous page.
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
    """A matching line, cut to a readable length."""

    parts: tuple[str, ...]
    line: int
    text: str
    score: float | None = None


class Searched(Struct, frozen=True):
    """What was found; not `complete` if time ran out before all files were searched."""

    hits: tuple[Hit, ...]
    complete: bool


class Searcher:
    """Runs searches.

    Keeps one process ready, because starting one takes longer than most searches.
    """

    def __init__(self, *, seconds: float = 10.0) -> None:
        limits = JobLimits(seconds=seconds, memory_bytes=512 << 20, output_bytes=16 << 20)
        self._jobs = Jobs("rlm.gateway.search_worker", limits, at_once=4)
        self._tasks = BackgroundTasks()

    def prepare(self) -> None:
        """Start a process for the first search."""
        self._jobs.prepare()

    async def search(self, root: Root, wanted: Search, owner: str = "") -> Searched:
        """Return the hits that were found in time, up to the wanted number.

        One owner can use half of the processes, so that its patterns can't block all others.
        """
        return await self._tasks.run(self._search(root, wanted, owner))

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
        await self._tasks.close()
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
        "most": max(1, min(wanted.most, MAX_HITS)),
        "below": wanted.below,
        "files": wanted.files,
        "names": wanted.names,
        "ignored": wanted.ignored,
        "after": wanted.after,
    }


class Place(Struct, frozen=True):
    """Where to search: below a folder of a root, or in some files of it, in order."""

    root: Root
    below: tuple[str, ...] = ()
    files: tuple[tuple[str, ...], ...] | None = None


class Finder:
    """Searches for sessions, and counts what they are shown."""

    def __init__(self, ledger: Ledger, searcher: Searcher, *, shows_ignored: bool) -> None:
        self._ledger = ledger
        self._searcher = searcher
        self._shows_ignored = shows_ignored

    def place(
        self, session: GatewaySession, root: str | None, path: str, handles: Sequence[str] | None
    ) -> Place:
        """Return the place that a client names; the order of its handles does not matter."""
        if not handles:
            return Place(self._ledger.root(session, root), parts_of(path))
        known = [session.handle(each) for each in handles]
        if any(each.root is not known[0].root for each in known):
            raise Refused("these handles belong to different roots; search one root at a time")
        return Place(known[0].root, files=tuple(sorted({each.parts for each in known})))

    async def search(
        self,
        session: GatewaySession,
        place: Place,
        query: str,
        ranked: bool,
        limit: int,
        cursor: str | None,
    ) -> Answer:
        """Return the best lines for some words or, page by page, all that match a pattern."""
        if session.bytes_left <= 0:
            session.count_bytes(1)  # raises, with what is left
        after = None
        if cursor is not None:
            parts, line = read_cursor(cursor, tuple[list[str], int])
            after = (tuple(parts), line)
        wanted = Search(
            query=query,
            ranked=ranked,
            most=min(limit, MAX_HITS),
            below=place.below,
            files=place.files,
            ignored=self._shows_ignored,
            after=after,
        )
        found = await self._searcher.search(place.root, wanted, session.principal)
        hits = self._fitting_hits(session, place.root, found.hits)
        is_last = found.complete and len(hits) < wanted.most
        more = len(hits) < len(found.hits) or (not ranked and not is_last)
        last = found.hits[len(hits) - 1] if hits and more and not ranked else None
        spans = [[hit["handle"], hit["line"], hit["line"], digest(hit["text"])] for hit in hits]
        asked = {"query": query, "mode": "ranked" if ranked else "regex"}
        self._ledger.record(session, "rlm_search", asked, spans=spans)
        return {
            "hits": hits,
            "complete": found.complete and not more,
            "next_cursor": None if last is None else cursor_of([list(last.parts), last.line]),
            "left": self._ledger.left(session),
        }

    def _fitting_hits(
        self, session: GatewaySession, root: Root, found: Sequence[Hit]
    ) -> list[Answer]:
        """Return as many hits as fit into one answer, and into the session."""
        hits, shown = [], 0
        for hit in found:
            size = len(hit.text.encode("utf-8", "replace"))
            if shown + size > min(MAX_BYTES, session.bytes_left):
                break
            shown += size
            shown_hit = {"handle": session.handle_for(root, hit.parts), "line": hit.line}
            shown_hit |= {"text": hit.text, **self._ledger.name(hit.parts)}
            hits.append(shown_hit if hit.score is None else {**shown_hit, "score": hit.score})
        session.count_bytes(shown)
        return hits
