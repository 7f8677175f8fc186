"""The driver's side of contexts: put in the object store once, written once on each node.

The stored form is the one that workers map (`rlm.environments._shared`). The first session on a
node has its actor write the file; others open it. Sessions never get pages of the object store,
because those hold other objects too.
"""

import asyncio
import mmap
import os
import pickle
import secrets
import threading
import weakref
from collections import Counter
from concurrent.futures import Future
from typing import Any

from rlm.environments._shared import written_context
from rlm.environments.ray.actor import Place
from rlm.environments.ray.cluster import landed, sdk
from rlm.environments.ray.pool import RemoteHost
from rlm.errors import SessionError
from rlm.protocols import ContextSource

__all__ = ["ContextStore"]

_PIECE_BYTES = 64 << 20
_TRIES = 3


class _Entry:
    """One context. Its lock is held while it is put into the object store."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)
        self.lock = threading.Lock()
        self.layout: dict[str, Any] | None = None
        self.pieces: list[Any] = []
        self.places: dict[str, Place] = {}
        self.writing: dict[str, Future[None]] = {}

    def put(self, source: ContextSource) -> bool:
        """Write the context to a file here, copy it to the object store, and close the file.

        Return False if that has been done already.
        """
        with self.lock:
            if self.pieces:
                return False
            shared = written_context(source)
            try:
                self.pieces = _put_file(shared.fd)
            finally:
                os.close(shared.fd)
            self.layout = shared.layout
            return True


class ContextStore:
    """The contexts of one environment; `puts` and `writes` count the copies made of them."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._lock = threading.Lock()
        self.puts = 0
        self.writes: Counter[str] = Counter()
        """How many times a file was written, by node."""

    def stale(self, host: RemoteHost) -> list[str]:
        """Return the contexts that an actor holds but that are gone; the caller informs it."""
        if not host.contexts:
            return []
        living = {entry.name for entry in list(self._entries.values())}
        gone = host.contexts - living
        host.contexts -= gone
        return sorted(gone)

    async def lend(
        self, host: RemoteHost, number: int, source: ContextSource
    ) -> dict[str, Any] | None:
        """Send a session the file with its next bytes and return the file's layout.

        None if the object store has no room for it, or the node can't make a file.
        """
        entry = self._entry(source)
        for _ in range(_TRIES):
            try:
                await asyncio.to_thread(self._put, entry, source)
            except sdk().exceptions.RayError:
                return None
            if await host.call("lend", number, entry.name, entry.places.get(host.node)):
                host.contexts.add(entry.name)
                return entry.layout
            try:
                await self._write(entry, host)
            except SessionError:
                if host.is_lost:
                    raise
                return None
        return None

    def _entry(self, source: ContextSource) -> _Entry:
        with self._lock:
            entry = self._entries.get(id(source))
            if entry is None:
                entry = self._entries[id(source)] = _Entry()
                # This may run in any thread, so it must not wait for a lock.
                weakref.finalize(source, self._entries.pop, id(source), None)
            return entry

    def _put(self, entry: _Entry, source: ContextSource) -> None:
        if entry.put(source):
            with self._lock:
                self.puts += 1

    async def _write(self, entry: _Entry, host: RemoteHost) -> None:
        """Have one actor of a node write the file, while other sessions wait for it."""
        with self._lock:
            writing = entry.writing.get(host.node)
            if writing is None:
                mine: Future[None] = Future()
                entry.writing[host.node] = mine
        if writing is not None:
            await landed(writing)
            return
        try:
            place = await host.call("keep", entry.name, entry.pieces)
            if place is None:  # The object store has lost it, probably together with a node.
                entry.pieces = []
                return
            self.writes[host.node] += 1
            entry.places[host.node] = place
            host.contexts.add(entry.name)
        finally:
            del entry.writing[host.node]
            mine.set_result(None)


def _put_file(fd: int) -> list[Any]:
    """Copy a file to the object store, in pieces, and return their references."""
    ray = sdk()
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as whole:
        pieces = []
        for at in range(0, len(whole), _PIECE_BYTES):
            with whole[at : at + _PIECE_BYTES] as piece:
                buffer = pickle.PickleBuffer(piece)
                pieces.append(ray.put(buffer))
                buffer.release()
        return pieces
