"""Files that clients have handles for: their lines, bounded spans of them, and whole files."""

import hashlib
import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from msgspec import Struct

from rlm._util.text import counted
from rlm.gateway.errors import Refused
from rlm.gateway.listing import files_below
from rlm.gateway.paths import Root
from rlm.gateway.sessions import GatewaySession, Handle

__all__ = [
    "MAX_BYTES",
    "MAX_LINES",
    "LineIndex",
    "Loaded",
    "Loading",
    "OpenFiles",
    "Span",
    "chosen_files",
    "load_files",
    "read_span",
    "version_of",
]

BLOCK_BYTES = 1 << 20
MAX_SCANNED_BYTES = 4 << 30
"""Line numbers beyond this are not computed: that would take minutes for one request."""


class LineIndex:
    """Line numbers and offsets of one version of a file. Only `\n` ends a line."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._counts = [0]  # line ends before each block that was scanned
        self._looking = threading.Lock()

    def line_at(self, fd: int, offset: int) -> int:
        """Return the number of the line that contains the byte at `offset`, from 1."""
        block = offset // BLOCK_BYTES
        while len(self._counts) <= block:
            self._look_at_next(fd)
        start = block * BLOCK_BYTES
        return self._counts[block] + os.pread(fd, offset - start, start).count(b"\n") + 1

    def offset_of(self, fd: int, line: int) -> int | None:
        """Return where a line begins; None if the file has fewer."""
        wanted = line - 1  # line ends before it
        if wanted <= 0:
            return 0 if wanted == 0 and self.size_bytes else None
        while self._counts[-1] < wanted and self._is_more():
            self._look_at_next(fd)
        block = bisect_right(self._counts, wanted - 1) - 1
        start, left = block * BLOCK_BYTES, wanted - self._counts[block]
        data = self._block(fd, block)
        at = -1
        for _ in range(left):
            at = data.find(b"\n", at + 1)
            if at < 0:
                return None
        found = start + at + 1
        return found if found < self.size_bytes else None

    def count(self, fd: int) -> int:
        """Return the number of lines; the last one may lack its line end."""
        while self._is_more():
            self._look_at_next(fd)
        if not self.size_bytes:
            return 0
        ends_open = os.pread(fd, 1, self.size_bytes - 1) != b"\n"
        return self._counts[-1] + ends_open

    def _is_more(self) -> bool:
        return (len(self._counts) - 1) * BLOCK_BYTES < self.size_bytes

    def _look_at_next(self, fd: int) -> None:
        """Scan one more block; threads that need the same file take turns."""
        with self._looking:
            block = len(self._counts) - 1
            if block * BLOCK_BYTES >= MAX_SCANNED_BYTES:
                raise Refused("this file is too large to find lines this far in")
            self._counts.append(self._counts[-1] + self._block(fd, block).count(b"\n"))

    def _block(self, fd: int, block: int) -> bytes:
        start = block * BLOCK_BYTES
        return os.pread(fd, min(BLOCK_BYTES, max(0, self.size_bytes - start)), start)


MAX_LINES = 200
MAX_BYTES = 8_192
SNIFFED_BYTES = 8_192
_LONGEST_CHARACTER = 4


class Span(Struct, frozen=True):
    """What was read: whole lines, or part of a long one. `end_line` is included.

    `next_offset` is where the rest begins, None at the end of the file. `sha256` is the hash of
    the bytes in the file. `lossy`: some are not UTF-8 and are shown as U+FFFD.
    """

    text: str
    start_line: int
    end_line: int
    start_offset: int
    end_offset: int
    next_offset: int | None
    sha256: str
    lossy: bool = False


def read_span(
    fd: int,
    index: LineIndex,
    *,
    start_line: int | None = None,
    offset: int | None = None,
    lines: int = MAX_LINES,
    max_bytes: int = MAX_BYTES,
) -> Span:
    """Read from a line, or from the offset of an earlier span, as far as the limits allow."""
    start = _start(fd, index, start_line, offset)
    lines = max(1, min(lines, MAX_LINES))
    most = max(_LONGEST_CHARACTER, min(max_bytes, MAX_BYTES))
    data = os.pread(fd, min(most + 1, index.size_bytes - start), start)
    if b"\0" in data[:SNIFFED_BYTES]:
        raise Refused("this is not text: it contains NUL bytes")
    is_cut = len(data) > most
    data = _whole_lines(data[:most], lines, is_cut)
    end = start + len(data)
    first = index.line_at(fd, start)
    text, lossy = _decoded(data)
    return Span(
        text=text,
        start_line=first,
        end_line=first + data[:-1].count(b"\n"),
        start_offset=start,
        end_offset=end,
        next_offset=end if end < index.size_bytes else None,
        sha256=hashlib.sha256(data).hexdigest(),
        lossy=lossy,
    )


def _start(fd: int, index: LineIndex, start_line: int | None, offset: int | None) -> int:
    if offset is not None:
        if not 0 <= offset < max(1, index.size_bytes):
            raise Refused(
                f"there is nothing at {offset:,}: the file has {counted(index.size_bytes, 'byte')}"
            )
        return offset
    start = index.offset_of(fd, 1 if start_line is None else start_line)
    if start is None:
        if not index.size_bytes:
            return 0
        raise Refused(
            f"there is no line {start_line}: the file has {counted(index.count(fd), 'line')}"
        )
    return start


def _whole_lines(data: bytes, lines: int, is_cut: bool) -> bytes:
    """Return as many whole lines as wanted; if the first exceeds the limit, whole characters."""
    at = -1
    for _ in range(lines):
        following = data.find(b"\n", at + 1)
        if following < 0:
            break
        at = following
    else:
        return data[: at + 1]
    if not is_cut:
        return data
    return data[: at + 1] if at >= 0 else _whole_characters(data)


def _whole_characters(data: bytes) -> bytes:
    """Remove an incomplete character from the end."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            needed = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            return data[:-back] if needed > back and len(data) > back else data
    return data


def _decoded(data: bytes) -> tuple[str, bool]:
    try:
        return data.decode("utf-8"), False
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), True


MAX_INDEXES = 256


def version_of(facts: os.stat_result) -> str:
    """Return a short text that changes whenever the file does."""
    parts = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class OpenFiles:
    """Line indexes by version of a file; the file itself is reopened for every request."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[str, LineIndex] = OrderedDict()
        self._taking = threading.Lock()

    @contextmanager
    def opened(self, handle: Handle) -> Generator[tuple[int, LineIndex, str], None, None]:
        """Open the file of a handle; yield its descriptor, its lines and its current version."""
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
            while len(self._indexes) > MAX_INDEXES:
                self._indexes.popitem(last=False)
            return known


class Loaded(Struct, frozen=True):
    """A file as it was when it was read."""

    handle: Handle
    data: bytes
    version: str

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


class Loading(Struct, frozen=True):
    """What was read; `skipped` counts files that are not text or no longer exist."""

    files: tuple[Loaded, ...]
    skipped: int


def chosen_files(
    session: GatewaySession,
    handles: Sequence[str],
    root: Root,
    path: tuple[str, ...] | None,
    *,
    ignored: bool,
) -> list[Handle]:
    """Return the files of these handles, and the file, or all files below the folder, at `path`."""
    found = {handle: session.handle(handle) for handle in handles}
    if path is not None:
        for parts in _at(root, path, ignored):
            handle = session.handle_for(root, parts)
            found[handle] = session.handle(handle)
            _check_number(len(found), session)
    if not found:
        raise Refused("choose files: handles, or a path")
    _check_number(len(found), session)
    return list(found.values())


def _at(root: Root, path: tuple[str, ...], ignored: bool) -> Iterable[tuple[str, ...]]:
    """Return the file at a path, or all files below it."""
    if path:
        try:
            os.close(root.open_file(path))
        except Refused:
            pass
        else:
            return [path]
    return (entry.parts for entry in files_below(root, path, ignored=ignored))


def _check_number(number: int, session: GatewaySession) -> None:
    if number > session.ceilings.run_files:
        raise Refused(
            f"at most {counted(session.ceilings.run_files, 'file')} at once; choose fewer"
        )


def load_files(handles: Sequence[Handle], max_bytes: int) -> Loading:
    """Read all files; raise Refused if together they are too large."""
    found, skipped, total = [], 0, 0
    for handle in handles:
        try:
            fd = handle.root.open_file(handle.parts)
        except Refused:
            skipped += 1
            continue
        with os.fdopen(fd, "rb") as file:
            facts = os.fstat(fd)
            is_binary = b"\0" in os.pread(fd, SNIFFED_BYTES, 0)
            is_too_large = total + facts.st_size > max_bytes
            data = b"" if is_binary or is_too_large else file.read(max_bytes - total + 1)
        if is_binary or b"\0" in data:
            skipped += 1
            continue
        total += len(data)
        if is_too_large or total > max_bytes:
            raise Refused(f"these files have more than {counted(max_bytes, 'byte')}; choose fewer")
        found.append(Loaded(handle, data, version_of(facts)))
    if not found:
        raise Refused("none of these files is readable text")
    return Loading(tuple(found), skipped)
