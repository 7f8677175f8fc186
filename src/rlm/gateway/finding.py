"""`rlm_search`: where to look, and how much of what was found is shown."""

from collections.abc import Sequence

from msgspec import Struct

from rlm.gateway.cursors import cursor_of, read_cursor
from rlm.gateway.ledger import Answer, Ledger
from rlm.gateway.paths import Root, parts_of
from rlm.gateway.provenance import digest
from rlm.gateway.refusals import Refused
from rlm.gateway.searching import MOST_HITS, Hit, Search, Searcher
from rlm.gateway.sessions import GatewaySession
from rlm.gateway.spans import MOST_BYTES

__all__ = ["Finder", "Place"]


class Place(Struct, frozen=True):
    """Where to look: below a folder of a root, or in some files of it, in their order."""

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
        """What a client names; the order of its handles does not matter."""
        if not handles:
            return Place(self._ledger.root(session, root), parts_of(path))
        known = [session.handle(each) for each in handles]
        if any(each.root is not known[0].root for each in known):
            raise Refused("these handles are of different roots; search one root at a time")
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
        """The best lines for some words, or, page by page, all that match a pattern."""
        if session.bytes_left <= 0:
            session.count_bytes(1)  # says what is left
        after = None
        if cursor is not None:
            parts, line = read_cursor(cursor, tuple[list[str], int])
            after = (tuple(parts), line)
        wanted = Search(
            query=query,
            ranked=ranked,
            most=min(limit, MOST_HITS),
            below=place.below,
            files=place.files,
            ignored=self._shows_ignored,
            after=after,
        )
        found = await self._searcher.search(place.root, wanted, session.principal)
        hits = self._shown(session, place.root, found.hits)
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

    def _shown(self, session: GatewaySession, root: Root, found: Sequence[Hit]) -> list[Answer]:
        """As many hits as one answer, and the session, have room for."""
        hits, shown = [], 0
        for hit in found:
            size = len(hit.text.encode("utf-8", "replace"))
            if shown + size > min(MOST_BYTES, session.bytes_left):
                break
            shown += size
            told = {"handle": session.handle_for(root, hit.parts), "line": hit.line}
            told |= {"text": hit.text, **self._ledger.name(hit.parts)}
            hits.append(told if hit.score is None else {**told, "score": hit.score})
        session.count_bytes(shown)
        return hits
