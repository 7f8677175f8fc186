"""A context as it is stored: its bytes, its description, and what was skipped."""

import asyncio
import hashlib
import json
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from rlm.context.parts import (
    Documents,
    EncodedTexts,
    FilePart,
    FileTexts,
    HeldText,
    HeldTexts,
    MemoryPart,
    Part,
    cut,
)
from rlm.context.pictures import manifest, stand_in
from rlm.context.scanning import HASHED_AT_ONCE_BYTES
from rlm.data.filesystem.opening import tail_of
from rlm.data.filesystem.skipping import EXPECTED, Skipped, left_out
from rlm.errors import ConfigError
from rlm.images import Picture

if TYPE_CHECKING:  # Imported where they are used: few programs use them.
    from rlm.data import DataSource

__all__ = ["StoredContext", "ascii_in_place"]

READ_FOR_ENDING_BYTES = 8 << 20
_MIN_CHARS = 1 << 20
"""Below this size, a copy takes less time than loading `ctypes`."""


def ascii_in_place(text: str) -> memoryview | None:
    """Return a view of an ASCII text without a copy; None if its bytes must be made.

    With a view, hashing or sending a gigabyte does not hold the interpreter's lock.
    """
    if len(text) < _MIN_CHARS or not text.isascii() or sys.implementation.name != "cpython":
        return None
    import ctypes

    size = ctypes.c_ssize_t()
    find = ctypes.pythonapi.PyUnicode_AsUTF8AndSize  # ASCII is not copied.
    find.restype = ctypes.c_void_p
    find.argtypes = [ctypes.py_object, ctypes.POINTER(ctypes.c_ssize_t)]
    address = find(text, ctypes.byref(size))
    data = (ctypes.c_char * size.value).from_address(address)
    vars(data)["text"] = text  # The text must outlive the view.
    return memoryview(data).cast("B").toreadonly()


_one_at_a_time = threading.Lock()
"""Held while a thread to hash a context is chosen, not while it hashes."""


class StoredContext:
    """One blob and its kind. Sessions read `chunks`; people and models get `description`.

    `pictures` stay on the host: model calls may name them. `name` is that of the only file. Data of
    kind "source" stays there too: the blob is the manifest of `source`.
    """

    def __init__(
        self,
        kind: Literal["text", "json", "bytes", "source"],
        data: str | bytes | Sequence[Part],
        description: str,
        *,
        size_bytes: int | None = None,
        sha256: str | None = None,
        texts: FileTexts | HeldTexts | EncodedTexts | None = None,
        documents: tuple[str, ...] = (),
        pictures: Mapping[str, Picture] | None = None,
        skipped: tuple[Skipped, ...] = (),
        remarks: tuple[str, ...] = (),
        name: str | None = None,
        source: "DataSource | None" = None,
    ) -> None:
        self.name = name
        self.source = source
        self.kind: Literal["text", "json", "bytes", "source"] = kind
        self.description = description
        self.documents = documents
        self.pictures: Mapping[str, Picture] = pictures or {}
        self.skipped = skipped
        self._remarks = remarks
        self._texts = texts
        self._text: str | None = None
        self._hash: Future[str] | None = None
        self._parts: tuple[Part, ...]
        if isinstance(data, str):
            self._text, self._parts = data, (HeldText(data),)
            self._texts = HeldTexts((data,)) if kind == "text" else texts
            size_bytes = len(data) if data.isascii() else None
        elif isinstance(data, bytes):
            self._parts = (MemoryPart(data),)
            size_bytes = len(data)
        else:
            self._parts = tuple(data)
        if size_bytes is not None:
            self.size_bytes = size_bytes
        if sha256 is not None:
            self._hash = Future()
            self._hash.set_result(sha256)

    @cached_property
    def source_manifest(self) -> dict[str, Any]:
        """What sandboxes know about `source`; a corpus may have grown since."""
        told: dict[str, Any] = json.loads(self.data)
        return told

    @cached_property
    def size_bytes(self) -> int:
        """Return the number of bytes to send; for files, it was counted before."""
        return sum(map(len, self.blocks()))

    @property
    def sha256(self) -> str:
        """Return the hash of what is sent, waiting for it if necessary; see `hashing`."""
        return self.hashing().result()

    @property
    def known_sha256(self) -> str | None:
        """Return the hash; None if the context is large and its hash was not needed so far."""
        if self.size_bytes <= HASHED_AT_ONCE_BYTES:
            return self.sha256
        made = self._hash
        is_there = made is not None and made.done() and made.exception() is None
        return self.sha256 if is_there else None

    def hashing(self) -> Future[str]:
        """Return the hash as a future, computed once; a large context is hashed in its own thread.

        That thread does not keep the program from ending. If a file changed, raise ConfigError.
        """
        with _one_at_a_time:
            made = self._hash
            if made is not None and not (made.done() and made.exception()):
                return made
            self._hash = made = Future()
            made.set_running_or_notify_cancel()  # A caller that stops waiting must not cancel it.
        if self.size_bytes <= HASHED_AT_ONCE_BYTES:
            self._make_hash(made)
        else:
            name = "rlm-context-hash"
            threading.Thread(target=self._make_hash, args=(made,), name=name, daemon=True).start()
        return made

    async def hashed(self) -> None:
        """Wait for the hash without blocking the event loop."""
        if self.known_sha256 is None:
            await asyncio.wrap_future(self.hashing())

    def _make_hash(self, made: Future[str]) -> None:
        try:
            made.set_result(self._hash_of_blocks())
        except ConfigError as error:
            made.set_exception(error)
        finally:
            if not made.done():
                made.set_exception(ConfigError("the context could not be hashed"))

    def _hash_of_blocks(self) -> str:
        digest = hashlib.sha256()
        if (view := self.in_place()) is not None:
            digest.update(view)
        else:
            for block in self.blocks():
                digest.update(block)
        return digest.hexdigest()

    @property
    def notices(self) -> tuple[str, ...]:
        """Return what the caller should know: one line per surprise, and what was left out."""
        return (*self._remarks, *left_out(self.skipped))

    def remark(self, remarks: Sequence[str]) -> None:
        """Add notices about where the context comes from."""
        self._remarks = (*self._remarks, *remarks)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the notices, except expected ones such as entries of .gitignore."""
        missed = [each for each in self.skipped if each.reason not in EXPECTED]
        return (*self._remarks, *left_out(missed))

    @property
    def data(self) -> bytes:
        """Return the whole blob, in memory."""
        return b"".join(self.blocks())

    def beside(self) -> "dict[str, StoredContext]":
        """Return what else a session receives, by name: the list of pictures, if any."""
        if not self.pictures:
            return {}
        return {"pictures": StoredContext("json", json.dumps(manifest(self.pictures)), "")}

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        """Yield the blob in pieces of one size; ConfigError if a file changed."""
        for part in self._parts:
            part.check()  # Check all first: a session must not receive half a context.
        yield from cut(self.blocks(), chunk_bytes)

    def in_place(self) -> memoryview | None:
        """Return a view of all bytes in memory; None if they must be made."""
        return None if self._text is None else ascii_in_place(self._text)

    def documents_in_order(self) -> Documents | None:
        """Return the text, or the texts of a list, dict or files; None for anything else.

        Each must be read before the next; ConfigError if a file changed.
        """
        return None if self._texts is None else self._checked(self._texts)

    def _checked(self, texts: FileTexts | HeldTexts | EncodedTexts) -> Documents:
        for part in self._parts:
            part.check()
        yield from texts.in_order()

    def text(self) -> str:
        """Return the whole context as one text; each document follows its name."""
        if self.documents and (texts := self.documents_in_order()) is not None:
            return "\n\n".join(f"=== {name} ===\n{''.join(pieces)}" for name, pieces in texts)
        if self.source is not None:
            return self.description
        if self._text is not None:
            return self._text
        if self.kind == "bytes" and self.pictures:
            return stand_in(self.pictures)
        errors = "replace" if self.kind == "bytes" else "surrogatepass"
        return self.data.decode("utf-8", errors)

    def preview(self, chars: int) -> str:
        """Return the beginning of a text, shown to the model only on request."""
        if chars == 0 or self.kind in ("bytes", "source"):
            return ""
        head = next(cut(self.blocks(), 4 * chars), b"")
        return head.decode("utf-8", "ignore")[:chars]

    def ending(self, chars: int) -> str:
        """Return the end of a text, or nothing if a large context would have to be read for it."""
        if chars == 0 or self.kind in ("bytes", "source"):
            return ""
        if self._text is not None:
            return self._text[-chars:]
        last = self._parts[-1] if self._parts else None
        if isinstance(last, FilePart) and last.is_verbatim:
            tail = tail_of(last.path, last.stamp, 4 * chars)
        elif self.size_bytes <= READ_FOR_ENDING_BYTES:
            tail = b"".join(deque(cut(self.blocks(), 4 * chars), maxlen=2))
        else:
            return ""
        return tail.decode("utf-8", "ignore")[-chars:]

    @property
    def source_kind(self) -> str:
        """The kind of data on the host, such as `tables`; empty if the context is not such data."""
        return "" if self.source is None else str(self.source_manifest["source"])

    def described(self, preview_chars: int) -> str:
        """Return the description, with rows of tables if the model may see content at once."""
        if self.source is None or not preview_chars:
            return self.description
        rows = self.source.preview(preview_chars)
        return f"{self.description}\n{rows}" if rows else self.description

    def first_look(self, chars: int) -> tuple[str, str]:
        """Return the beginning and the end, `chars` characters in all; a short text has no end."""
        head = self.preview(chars + 1)
        if len(head) <= chars:
            return head, ""
        at_the_end = chars // 4
        return head[: chars - at_the_end], self.ending(at_the_end)

    def digest(self, query: str) -> str:
        """Return a hash of a (query, context) pair that is the same on every execution."""
        seen = "".join(f"{name}\0{each.sha256}\0" for name, each in self.pictures.items())
        pair = f"{self.kind}\0{self.sha256}\0{seen}{query}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(pair).hexdigest()[:16]

    def blocks(self) -> Iterator[bytes]:
        """Yield the blob in pieces of any size; a piece may end inside a character."""
        return chain.from_iterable(part.blocks() for part in self._parts)
