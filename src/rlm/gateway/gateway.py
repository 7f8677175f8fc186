"""What clients can do, over any transport: the rules of the gateway in one place.

Each method is one tool. It counts the request, handles it, records what was shown, and answers with
plain values that contain no path of this machine. It raises `Refused` for what it does not grant.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rlm._util.text import counted, sendable
from rlm.gateway.callers import Caller, RepliesNeeded
from rlm.gateway.completing import Completer
from rlm.gateway.errors import Refused
from rlm.gateway.executing import Executor
from rlm.gateway.files import (
    MAX_BYTES,
    MAX_LINES,
    LineIndex,
    OpenFiles,
    Span,
    load_files,
    read_span,
)
from rlm.gateway.ledger import Answer, Ledger, cursor_of, read_cursor
from rlm.gateway.listing import Entry, list_page
from rlm.gateway.models import Models
from rlm.gateway.paths import Root, parts_of
from rlm.gateway.provenance import Provenance, digest
from rlm.gateway.searching import Finder, Searcher
from rlm.gateway.sessions import Ceilings, GatewaySession, Handle, Sessions
from rlm.gateway.tasks import Threads

__all__ = ["Gateway"]

MAX_PROVENANCE = 100
SWEEP_SECONDS = 30.0


class Gateway:
    """Roots, sessions, search, code, runs and the record, behind the tools.

    `shows_names`: clients see paths below the roots; otherwise they know files by handle alone.
    `models`: what runs use; None is the client's own model, unless `samples` forbids it.
    `run_seconds`: a request for a run is answered after this time at the latest; the run continues.
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
        models: Models | None = None,
        samples: bool = True,
        exec_seconds: float = 30.0,
        run_seconds: float = 45.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sessions = Sessions(roots, ceilings or Ceilings(), clock, self._ended)
        self.ledger = Ledger(self.sessions, provenance, shows_names=shows_names)
        self.files = OpenFiles()
        self.threads = Threads()
        self.searcher = Searcher(seconds=search_seconds)
        self.finder = Finder(self.ledger, self.searcher, shows_ignored=shows_ignored)
        self.executor = Executor(seconds=exec_seconds)
        self.completer = Completer(
            self.ledger,
            models,
            self.threads,
            samples=samples,
            seconds=run_seconds,
            shows_ignored=shows_ignored,
        )
        self.provenance = provenance
        self._shows_ignored = shows_ignored
        self._roots = tuple(roots)
        self._sweeper: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """End everything: runs, code, searches, the record."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        await self.completer.close()
        await self.executor.close()
        await self.searcher.close()
        await self.threads.close()
        self.provenance.close()
        for root in self._roots:
            root.close()

    def _ended(self, session: GatewaySession) -> None:
        """End the runs and the code of a session that has ended."""
        self.completer.end(session)
        self.executor.end_later(session.id)

    async def _sweep(self) -> None:
        """End idle sessions, even if no more requests come."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.sessions.end_old()

    # -- sessions ----------------------------------------------------------------------------

    def create_session(
        self, principal: str, roots: Sequence[str] | None = None, limits: Answer | None = None
    ) -> Answer:
        """Create a session, and return what it may use."""
        session = self.sessions.open(principal, roots, limits or {})
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep())
        self.ledger.record(session, "rlm_session_create", {"roots": list(session.roots)})
        self.searcher.prepare()
        return {
            "session": session.id,
            "roots": list(session.roots),
            "span": {"lines": MAX_LINES, "bytes": MAX_BYTES},
            "left": self.ledger.left(session),
        }

    def close_session(self, principal: str, session_id: str) -> Answer:
        session = self.sessions.get(session_id, principal)
        left = self.ledger.left(session)
        self.sessions.close(session)
        self.ledger.record(session, "rlm_session_close", {})
        return {"closed": True, "left": left}

    # -- files -------------------------------------------------------------------------------

    async def list_files(
        self,
        principal: str,
        session_id: str,
        root: str | None = None,
        path: str = "",
        cursor: str | None = None,
        limit: int = 100,
    ) -> Answer:
        """List files below a folder: handles, sizes, and names if they may be shown."""
        session = self.ledger.begin(principal, session_id)
        chosen, below = self.ledger.root(session, root), parts_of(path)
        after = None if cursor is None else tuple(read_cursor(cursor, list[str]))
        ignored = self._shows_ignored
        page = await self.threads.run(
            session.principal, list_page, chosen, below, after, limit, ignored=ignored
        )
        files = [self._entry(session, chosen, entry) for entry in page.entries]
        self.ledger.record(
            session, "rlm_list", {"root": chosen.name, "path": path, "cursor": cursor}
        )
        following = None if page.after is None else cursor_of(list(page.after))
        return {"files": files, "next_cursor": following, "left": self.ledger.left(session)}

    async def open(
        self, principal: str, session_id: str, path: str, root: str | None = None
    ) -> Answer:
        """Return the handle of a file whose path the client knows."""
        session = self.ledger.begin(principal, session_id)
        chosen, parts = self.ledger.root(session, root), parts_of(path)

        def look() -> Answer:
            with self.files.opened(Handle("", chosen, parts)) as (fd, index, version):
                return {"lines": _lines(fd, index), "bytes": index.size_bytes, "version": version}

        found = await self.threads.run(session.principal, look)
        handle = session.handle_for(chosen, parts)
        self.ledger.record(session, "rlm_open", {"root": chosen.name, "path": path}, handle=handle)
        return {"handle": handle, **found, "left": self.ledger.left(session)}

    async def read(
        self,
        principal: str,
        session_id: str,
        handle: str,
        start_line: int | None = None,
        lines: int = MAX_LINES,
        cursor: str | None = None,
    ) -> Answer:
        """Read a span of a file: at most 200 lines and 8,192 bytes."""
        session = self.ledger.begin(principal, session_id)
        known = session.handle(handle)
        offset = None if cursor is None else read_cursor(cursor, int)
        most = min(MAX_BYTES, session.bytes_left)
        if most <= 0:
            session.count_bytes(1)  # raises, with what is left

        def look() -> tuple[Span, str]:
            with self.files.opened(known) as (fd, index, version):
                span = read_span(
                    fd, index, start_line=start_line, offset=offset, lines=lines, max_bytes=most
                )
                return span, version

        span, version = await self.threads.run(session.principal, look)
        session.count_bytes(span.end_offset - span.start_offset)
        asked = {"handle": handle, "start_line": start_line, "lines": lines, "cursor": cursor}
        self.ledger.record(session, "rlm_read", asked, spans=[_evidence(known.id, span)])
        return {
            "text": span.text,
            "start_line": span.start_line,
            "end_line": span.end_line,
            "sha256": span.sha256,
            "version": version,
            "next_cursor": None if span.next_offset is None else cursor_of(span.next_offset),
            **({"lossy": True} if span.lossy else {}),
            "left": self.ledger.left(session),
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
        """Find lines: the best for some words, or all that match a regular expression."""
        session = self.ledger.begin(principal, session_id)
        place = self.finder.place(session, root, path, handles)
        return await self.finder.search(session, place, query, mode == "ranked", limit, cursor)

    async def report(self, principal: str, session_id: str, limit: int = 50) -> Answer:
        """Return the record of this session, newest last, and the seal of the file."""
        session = self.ledger.begin(principal, session_id)
        most = max(1, min(limit, MAX_PROVENANCE))

        def look() -> tuple[list[Answer], int]:
            last: deque[Answer] = deque(maxlen=most)
            number = 0
            for number, entry in enumerate(self.provenance.entries(session.id), 1):  # noqa: B007
                last.append(entry)
            return list(last), number

        entries, number = await self.threads.run(session.principal, look)
        hidden = ("principal", "session")
        return {
            "entries": [{n: v for n, v in each.items() if n not in hidden} for each in entries],
            "of": number,
            "seal": self.provenance.seal,
            "left": self.ledger.left(session),
        }

    # -- code and runs -----------------------------------------------------------------------

    async def execute(
        self, principal: str, session_id: str, code: str, handles: Sequence[str] | None = None
    ) -> Answer:
        """Run code in the session's interpreter, with `files`: a dict from handle to text."""
        session = self.ledger.begin(principal, session_id)
        if session.bytes_left <= 0:
            session.count_bytes(1)  # raises, with what is left
        files, skipped = None, 0
        if handles is not None:
            chosen = [session.handle(each) for each in dict.fromkeys(handles)]
            if len(chosen) > session.ceilings.run_files:
                raise Refused(f"at most {counted(session.ceilings.run_files, 'file')} at once")
            most = session.ceilings.run_bytes
            loading = await self.threads.run(session.principal, load_files, chosen, most)
            files, skipped = {each.handle.id: each.text for each in loading.files}, loading.skipped
        done = await self.executor.run(session.id, code, files, principal)
        if session.is_closed:
            self.executor.end_later(session.id)
            raise Refused("this session has ended")
        session.count_bytes(done.size_bytes)
        self.ledger.record(
            session,
            "rlm_exec",
            {"code": code, "handles": handles},
            handles=list(files or ()),
            code=digest(code),
            output=digest([done.output, done.error]),
        )
        return {
            "output": done.output,
            "error": done.error,
            "cut": done.cut,
            "fresh": done.fresh,
            **({"skipped_files": skipped} if skipped else {}),
            "left": self.ledger.left(session),
        }

    async def complete(
        self,
        principal: str,
        session_id: str,
        query: str,
        *,
        caller: Caller,
        handles: Sequence[str] = (),
        root: str | None = None,
        path: str | None = None,
    ) -> Answer | RepliesNeeded:
        """Run a query over chosen files, with citations; return a `run_id` if it takes longer."""
        session = self.ledger.begin(principal, session_id)
        return await self.completer.complete(caller, session, query, handles, root, path)

    async def continue_run(
        self, principal: str, session_id: str, run_id: str, *, caller: Caller
    ) -> Answer | RepliesNeeded:
        """Return the answer of a run that was started earlier, or that it is still running."""
        session = self.ledger.begin(principal, session_id)
        return await self.completer.continue_run(caller, session, run_id)

    # -- shared ------------------------------------------------------------------------------

    def _entry(self, session: GatewaySession, root: Root, entry: Entry) -> Answer:
        kind = entry.parts[-1].rpartition(".")[2] if "." in entry.parts[-1] else ""
        return {
            "handle": session.handle_for(root, entry.parts),
            "bytes": entry.size_bytes,
            "kind": sendable(kind[:16]),
            **self.ledger.name(entry.parts),
        }


def _lines(fd: int, index: LineIndex) -> int | None:
    try:
        return index.count(fd)
    except Refused:
        return None  # too many to count


def _evidence(handle: str, span: Span) -> list[Any]:
    return [handle, span.start_line, span.end_line, span.sha256]
