"""Open files of handles: kept for a while, and noticed when they change."""

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager

from rlm.gateway.lines import LineIndex
from rlm.gateway.sessions import Handle

__all__ = ["OpenFiles", "version_of"]

MOST_INDEXES = 256


def version_of(facts: os.stat_result) -> str:
    """A short text that changes whenever the file does."""
    told = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


class OpenFiles:
    """Where lines begin, by version of a file; the file itself is opened anew for every request."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[str, LineIndex] = OrderedDict()
        self._taking = threading.Lock()

    @contextmanager
    def opened(self, handle: Handle) -> Generator[tuple[int, LineIndex, str], None, None]:
        """The file of a handle: a descriptor, its lines, and its version now."""
        fd = handle.root.open_file(handle.parts)
        try:
            facts = os.fstat(fd)
            version = version_of(facts)
            yield fd, self._index(version, facts.st_size), version
        finally:
            os.close(fd)

    def _index(self, version: str, size_bytes: int) -> LineIndex:
        with self._taking:  # requests are served in threads
            known = self._indexes.pop(version, None) or LineIndex(size_bytes)
            self._indexes[version] = known
            while len(self._indexes) > MOST_INDEXES:
                self._indexes.popitem(last=False)
            return known
