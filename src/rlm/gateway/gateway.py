"""What clients can do, whatever carries their requests: the rules of the gateway in one place.

Each method is one tool. It counts the request, does it, records what was shown, and answers with
plain values that hold no path of this machine. What it can't grant is a `Refused`.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from rlm.gateway.files import OpenFiles
from rlm.gateway.listing import Entry, list_page
from rlm.gateway.paths import Root, parts_of
from rlm.gateway.provenance import Provenance, digest
from rlm.gateway.refusals import Refused
from rlm.gateway.searching import Search, Searcher
from rlm.gateway.sessions import Ceilings, GatewaySession, Handle, Sessions
from rlm.gateway.spans import MOST_BYTES, MOST_LINES, Span, read_span
from rlm.text import sendable

__all__ = ["Gateway"]

Answer = dict[str, Any]
MOST_CURSOR_CHARS = 20_000
MOST_PROVENANCE = 100


class Gateway:
    """Roots, sessions, search and the record, behind the tools.

    `shows_names`: clients see paths below the roots; otherwise files are known by handle alone.
    """

    def __init__(
        self,
        roots: Sequence[Root],
        provenance: Provenance,
        *,
        ceilings: Ceilings | None = None,
        shows_names: bool = False,
        shows_ignored: bool = False,
        search_seconds: float = 10.0,
    ) -> None:
        self.sessions = Sessions(roots, ceilings or Ceilings())
        self.files = OpenFiles()
        self.searcher = Searcher(seconds=search_seconds)
        self.provenance = provenance
        self.shows_names = shows_names
        self._shows_ignored = shows_ignored
        self._roots = tuple(roots)

    async def close(self) -> None:
        await self.searcher.close()
        self.provenance.close()
        for root in self._roots:
            root.close()

    # -- sessions ----------------------------------------------------------------------------

    def create_session(
        self, principal: str, roots: Sequence[str] | None = None, limits: Answer | None = None
    ) -> Answer:
        """A session, and what it may use."""
        session = self.sessions.open(principal, roots, limits or {})
        self._record(session, "rlm_session_create", {"roots": list(session.roots)})
        self.searcher.prepare()
        return {
            "session": session.id,
            "roots": list(session.roots),
            "span": {"lines": MOST_LINES, "bytes": MOST_BYTES},
            "left": self._left(session),
        }

    def close_session(self, principal: str, session_id: str) -> Answer:
        session = self.sessions.get(session_id, principal)
        left = self._left(session)
        self._record(session, "rlm_session_close", {})
        self.sessions.close(session)
        return {"closed": True, "left": left}

    # -- files -------------------------------------------------------------------------------

    async def list(
        self,
        principal: str,
        session_id: str,
        root: str | None = None,
        path: str = "",
        cursor: str | None = None,
        limit: int = 100,
    ) -> Answer:
        """Files below a folder: handles, sizes, and names where they may be shown."""
        session = self._begin(principal, session_id)
        chosen, below = self._root(session, root), parts_of(path)
        after = None if cursor is None else tuple(_read_cursor(cursor, list[str]))
        ignored = self._shows_ignored
        page = await asyncio.to_thread(list_page, chosen, below, after, limit, ignored=ignored)
        files = [self._entry(session, chosen, entry) for entry in page.entries]
        self._record(session, "rlm_list", {"root": chosen.name, "path": path, "cursor": cursor})
        following = None if page.after is None else _cursor(list(page.after))
        return {"files": files, "next_cursor": following, "left": self._left(session)}

    async def open(
        self, principal: str, session_id: str, path: str, root: str | None = None
    ) -> Answer:
        """The handle of a file whose path the client knows."""
        session = self._begin(principal, session_id)
        chosen, parts = self._root(session, root), parts_of(path)

        def look() -> Answer:
            with self.files.opened(Handle("", chosen, parts)) as (fd, index, version):
                return {"lines": index.count(fd), "bytes": index.size_bytes, "version": version}

        found = await asyncio.to_thread(look)
        handle = session.handle_for(chosen, parts)
        self._record(session, "rlm_open", {"root": chosen.name, "path": path}, handle=handle)
        return {"handle": handle, **found, "left": self._left(session)}

    async def read(
        self,
        principal: str,
        session_id: str,
        handle: str,
        start_line: int | None = None,
        lines: int = MOST_LINES,
        cursor: str | None = None,
    ) -> Answer:
        """A span of a file: at most 200 lines and 8,192 bytes, whatever is asked for."""
        session = self._begin(principal, session_id)
        known = session.handle(handle)
        offset = None if cursor is None else _read_cursor(cursor, int)
        most = min(MOST_BYTES, session.bytes_left)
        if most <= 0:
            session.count_bytes(1)  # says what is left

        def look() -> tuple[Span, str]:
            with self.files.opened(known) as (fd, index, version):
                span = read_span(
                    fd, index, start_line=start_line, offset=offset, lines=lines, most_bytes=most
                )
                return span, version

        span, version = await asyncio.to_thread(look)
        session.count_bytes(span.end_offset - span.start_offset)
        asked = {"handle": handle, "start_line": start_line, "lines": lines, "cursor": cursor}
        self._record(session, "rlm_read", asked, spans=[_evidence(known.id, span)])
        return {
            "text": span.text,
            "start_line": span.start_line,
            "end_line": span.end_line,
            "sha256": span.sha256,
            "version": version,
            "next_cursor": None if span.next_offset is None else _cursor(span.next_offset),
            **({"lossy": True} if span.lossy else {}),
            "left": self._left(session),
        }

    async def search(
        self,
        principal: str,
        session_id: str,
        query: str,
        mode: str = "ranked",
        root: str | None = None,
        path: str = "",
        handles: Sequence[str] | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> Answer:
        """Lines that match: the best for some words, or all for a regular expression."""
        session = self._begin(principal, session_id)
        if mode not in ("ranked", "regex"):
            raise Refused("mode is `ranked` or `regex`")
        chosen = self._root(session, root)
        files = None
        if handles is not None:
            known = [session.handle(each) for each in handles]
            chosen = known[0].root if known else chosen
            files = tuple(each.parts for each in known if each.root is chosen)
        after = None
        if cursor is not None:
            parts, line = _read_cursor(cursor, tuple[list[str], int])
            after = (tuple(parts), line)
        wanted = Search(
            query=query,
            ranked=mode == "ranked",
            most=limit,
            below=parts_of(path),
            files=files,
            ignored=self._shows_ignored,
            after=after,
        )
        found = await self.searcher.search(chosen, wanted)
        hits, shown = [], 0
        for hit in found.hits:
            size = len(hit.text.encode("utf-8", "replace"))
            if shown + size > min(MOST_BYTES, session.bytes_left):
                break
            shown += size
            told = {"handle": session.handle_for(chosen, hit.parts), "line": hit.line}
            told |= {"text": hit.text, **self._name(hit.parts)}
            hits.append(told if hit.score is None else {**told, "score": hit.score})
        session.count_bytes(shown)
        more = len(hits) < len(found.hits) or (mode == "regex" and len(hits) == wanted.most)
        last = found.hits[len(hits) - 1] if hits and more and mode == "regex" else None
        spans = [[h["handle"], h["line"], h["line"], digest(h["text"])] for h in hits]
        self._record(session, "rlm_search", {"query": query, "mode": mode}, spans=spans)
        return {
            "hits": hits,
            "complete": found.complete and not more,
            "next_cursor": None if last is None else _cursor([list(last.parts), last.line]),
            "left": self._left(session),
        }

    def report(self, principal: str, session_id: str, limit: int = 50) -> Answer:
        """What is on record about this session, the newest last, and the seal of the file."""
        session = self._begin(principal, session_id)
        entries = list(self.provenance.entries(session.id))
        most = max(1, min(limit, MOST_PROVENANCE))
        shown = [
            {name: value for name, value in entry.items() if name not in ("principal", "session")}
            for entry in entries[-most:]
        ]
        return {
            "entries": shown,
            "of": len(entries),
            "seal": self.provenance.seal,
            "left": self._left(session),
        }

    # -- shared ------------------------------------------------------------------------------

    def _begin(self, principal: str, session_id: str) -> GatewaySession:
        session = self.sessions.get(session_id, principal)
        session.count_call(self.sessions.clock())
        return session

    def _root(self, session: GatewaySession, name: str | None) -> Root:
        if name is None:
            return next(iter(session.roots.values()))
        if name not in session.roots:
            raise Refused(f"this session has no root {name!r}; roots: {', '.join(session.roots)}")
        return session.roots[name]

    def _entry(self, session: GatewaySession, root: Root, entry: Entry) -> Answer:
        kind = entry.parts[-1].rpartition(".")[2] if "." in entry.parts[-1] else ""
        return {
            "handle": session.handle_for(root, entry.parts),
            "bytes": entry.size_bytes,
            "kind": sendable(kind[:16]),
            **self._name(entry.parts),
        }

    def _name(self, parts: Sequence[str]) -> Answer:
        return {"name": sendable("/".join(parts))} if self.shows_names else {}

    def _left(self, session: GatewaySession) -> Answer:
        return session.left(self.sessions.clock())

    def _record(self, session: GatewaySession, tool: str, arguments: Answer, **facts: Any) -> None:
        self.provenance.record(
            principal=session.principal,
            session=session.id,
            tool=tool,
            arguments=digest(arguments),
            **facts,
        )


def _evidence(handle: str, span: Span) -> list[Any]:
    return [handle, span.start_line, span.end_line, span.sha256]


def _cursor(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _read_cursor(cursor: str, kind: Any) -> Any:
    """What `_cursor` made; a client may send anything."""
    if len(cursor) > MOST_CURSOR_CHARS:
        raise Refused("this is no cursor of an earlier answer")
    try:
        value = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return msgspec.convert(value, kind)
    except (binascii.Error, ValueError, RecursionError):
        raise Refused("this is no cursor of an earlier answer") from None
