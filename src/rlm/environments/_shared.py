"""Contexts in sealed memory files, which all sessions of this machine share.

A context is written in CPython's own representation, so workers map it instead of decoding it;
`rlm.worker.forms` describes the layout of the file.
"""

import codecs
import json
import os
import sys
import threading
import weakref
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from rlm.errors import SessionError
from rlm.protocols import ContextSource, DocumentSource, InMemorySource
from rlm.worker.forms import ALIGNMENT, ASCII, FORMS, LATIN_1, SHORT, UCS_2, UCS_4, WIDTHS, Table

__all__ = [
    "MemoryFile",
    "SharedContext",
    "can_share_memory",
    "shared_context",
    "worth_sharing",
    "written_context",
]

# -- files in memory --

_BLOCK_BYTES = 1 << 17


def can_share_memory() -> bool:
    """Return whether this system has memory files that can be sealed."""
    return hasattr(os, "memfd_create") and sys.platform == "linux"


class MemoryFile:
    """A file in memory, written from start to end; small pieces are buffered."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._written = 0
        with _explained():
            flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
            self.fd = os.memfd_create("rlm-context", flags)

    @property
    def position(self) -> int:
        """The offset of the next byte."""
        return self._written + len(self._waiting)

    def append(self, data: bytes | memoryview) -> None:
        """Write data at the end."""
        if len(data) >= _BLOCK_BYTES:
            self._flush()
            self._write(data, self._written)
            self._written += len(data)
            return
        self._waiting += data
        if len(self._waiting) >= _BLOCK_BYTES:
            self._flush()

    def align(self, size: int) -> None:
        """Pad the file to a multiple of `size`."""
        if rest := -self.position % size:
            self.append(bytes(rest))

    def widen(self, start: int, form: int, new_form: int) -> None:
        """Widen every character from `start` to the end of the file, in place.

        Works from the last block to the first, so that nothing is overwritten before it is read.
        """
        self._flush()
        old, new = WIDTHS[form], WIDTHS[new_form]
        chars = (self._written - start) // old
        block = _BLOCK_BYTES // new
        for first in range((chars - 1) // block * block, -1, -block):
            data = self._read(start + first * old, min(block, chars - first) * old)
            self._write(_widened(data, old, new), start + first * new)
        self._written = start + chars * new

    def seal(self) -> None:
        """Make the size and content unchangeable, for every process that has the file."""
        import fcntl

        self._flush()
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        with _explained():
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)

    def close(self) -> None:
        os.close(self.fd)

    def _flush(self) -> None:
        self._write(self._waiting, self._written)
        self._written += len(self._waiting)
        self._waiting = bytearray()

    def _read(self, offset: int, size: int) -> bytes:
        data = os.pread(self.fd, size, offset)
        assert len(data) == size, "memory gives all that was asked for"
        return data

    def _write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        rest = memoryview(data)
        while rest:
            with _explained():
                size = os.pwrite(self.fd, rest, offset)
            offset += size
            rest = rest[size:]


def _widened(data: bytes, width: int, new_width: int) -> bytes | bytearray:
    """Convert characters of one or two bytes to two or four."""
    codec = "utf-16-le" if new_width == 2 else "utf-32-le"
    if width == 1:
        return data.decode("latin-1").encode(codec)
    text = data.decode("utf-16-le", "surrogatepass")
    if 2 * len(text) == len(data):
        return text.encode(codec, "surrogatepass")
    # Two adjacent surrogates were decoded as one character: widen them by hand.
    wide = bytearray(2 * len(data))
    wide[0::4] = data[0::2]
    wide[1::4] = data[1::2]
    return wide


@contextmanager
def _explained() -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise SessionError(
            f"there is not enough shared memory for the context ({error.strerror}); free some "
            "memory, raise the limit of this process or container, or pass a smaller context"
        ) from error


# -- contexts --

_MIN_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 17


@dataclass(frozen=True)
class SharedContext:
    """A sealed file, and its layout for `rlm.worker.shared.value_of`."""

    fd: int
    layout: dict[str, Any]
    size_bytes: int

    @contextmanager
    def reopened(self) -> Generator[int, None, None]:
        """Open the file once more, read-only, for one session.

        All holders of one open file share its position and flags, through which sessions could
        communicate. Without /proc it can't be opened again.
        """
        try:
            fd = os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            yield self.fd
            return
        try:
            yield fd
        finally:
            os.close(fd)


class _Entry:
    """The file of one source; the lock is held while it is written."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.shared: SharedContext | None = None


_entries: dict[int, _Entry] = {}
_entries_lock = threading.Lock()


def worth_sharing(source: ContextSource) -> bool:
    """Return whether a file is possible, and cheaper than sending the bytes to each session."""
    if source.kind == "source":
        return False  # Its bytes are not all that the worker needs.
    can_be_forgotten = type(source).__weakrefoffset__ != 0
    return can_be_forgotten and can_share_memory() and source.size_bytes >= _MIN_BYTES


def shared_context(source: ContextSource) -> SharedContext:
    """Return the file of a source, written on the first call and closed with the source.

    This blocks for about a second per gigabyte; call it in a thread.
    """
    with _entries_lock:
        entry = _entries.get(id(source))
        if entry is None:
            entry = _entries[id(source)] = _Entry()
            weakref.finalize(source, _forget, id(source))
    with entry.lock:
        if entry.shared is None:
            entry.shared = written_context(source)
        return entry.shared


def _forget(key: int) -> None:
    """Close the file of a source. This may run in any thread, so it must not wait for a lock."""
    entry = _entries.pop(key, None)
    if entry is not None and entry.shared is not None:
        os.close(entry.shared.fd)


def written_context(source: ContextSource) -> SharedContext:
    """Write a source to a new file, which the caller closes."""
    file = MemoryFile()
    try:
        layout = _write(source, file)
        file.seal()
    except MemoryError as error:
        file.close()
        raise SessionError(
            f"there is not enough memory to share a context of {source.size_bytes:,} bytes; free "
            "some, or pass a smaller context"
        ) from error
    except BaseException:
        file.close()
        raise
    return SharedContext(file.fd, layout, file.position)


def _write(source: ContextSource, file: MemoryFile) -> dict[str, Any]:
    """Write a whole source and return its layout."""
    if source.kind == "bytes":
        for chunk in source.chunks(_CHUNK_BYTES):
            file.append(chunk)
        size = file.position
        file.append(b"\0")
        return {"kind": "bytes", "size": size}
    documents = source.documents_in_order() if isinstance(source, DocumentSource) else None
    if source.kind == "json" and documents is not None:
        return _write_texts(documents, file)
    text = _Text(file)
    view = source.in_place() if isinstance(source, InMemorySource) else None
    if view is not None:
        text.add_ascii(view)
    elif documents is None:
        _add_utf8(text, source.chunks(_CHUNK_BYTES))
    else:
        for _, pieces in documents:
            text.add_all(pieces)
    text.end()
    return {"kind": source.kind, "form": FORMS[text.form], "chars": text.chars}


def _write_texts(
    documents: Iterator[tuple[str | None, Iterator[str]]], file: MemoryFile
) -> dict[str, Any]:
    names: list[str] = []
    table = Table()
    for name, pieces in documents:
        if name is not None:
            names.append(name)
        _write_document(pieces, file, table)
    layout: dict[str, Any] = {"kind": "texts", "count": len(table.forms), "names": None}
    if names:
        layout["names"] = file.position
        file.append(json.dumps(names, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        layout["names_bytes"] = file.position - layout["names"]
    file.align(ALIGNMENT)
    layout["table"] = file.position
    for column in table.columns():
        file.append(column)
    file.append(b"\0")  # An empty file can't be mapped.
    return layout


def _write_document(pieces: Iterator[str], file: MemoryFile, table: Table) -> None:
    first, more = next(pieces, ""), next(pieces, None)
    while len(first) < 2 and more is not None:
        first, more = first + more, next(pieces, None)
    if len(first) < 2:
        table.add(ord(first) if first else 0, len(first), SHORT)
        return
    file.align(ALIGNMENT)
    if more is None:  # A shortcut: there may be 100,000 of them.
        form, data = _encoded(first, ASCII)
        table.add(file.position, len(first), form)
        file.append(data + bytes(WIDTHS[form]))
        return
    text = _Text(file)
    text.add_all(chain((first, more), pieces))
    text.end()
    table.add(text.start, text.chars, text.form)


class _Text:
    """A text that is being written, in the narrowest form that can hold it so far."""

    def __init__(self, file: MemoryFile) -> None:
        self.start = file.position
        self.form = ASCII
        self.chars = 0
        self._file = file

    def add(self, piece: str) -> None:
        form, data = _encoded(piece, self.form)
        if WIDTHS[form] > WIDTHS[self.form] and self.chars:
            self._file.widen(self.start, self.form, form)
        self.form = form
        self._file.append(data)
        self.chars += len(piece)

    def add_all(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            self.add(piece)

    def add_ascii(self, data: bytes | memoryview) -> None:
        """Add characters that are known to be ASCII."""
        if WIDTHS[self.form] > 1:
            self.add(str(data, "ascii"))
        else:
            self._file.append(data)
            self.chars += len(data)

    def end(self) -> None:
        """Write the terminating zero, on which C code relies."""
        self._file.append(bytes(WIDTHS[self.form]))


def _add_utf8(text: _Text, chunks: Iterator[bytes]) -> None:
    """Add encoded text in chunks, which may end inside a character."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    in_a_character = b""
    for chunk in chunks:
        if not in_a_character and chunk.isascii():
            text.add_ascii(chunk)
        else:
            text.add(decoder.decode(chunk))
            in_a_character = decoder.getstate()[0]
    text.add(decoder.decode(b"", final=True))


def _encoded(piece: str, least: int) -> tuple[int, bytes]:
    """Encode a piece in its narrowest form, or in `least` if that is wider."""
    if piece.isascii() and least <= LATIN_1:
        return least, piece.encode("ascii")
    if least <= LATIN_1:
        try:
            return LATIN_1, piece.encode("latin-1")
        except UnicodeEncodeError:
            pass  # It needs a wider form.
    if least <= UCS_2:
        data = piece.encode("utf-16-le", "surrogatepass")
        if len(data) == 2 * len(piece):
            return UCS_2, data
    return UCS_4, piece.encode("utf-32-le", "surrogatepass")
