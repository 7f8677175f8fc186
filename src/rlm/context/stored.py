"""One stored context: what travels to every session of a run, and what is told about it."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Literal

from rlm.context.parts import MemoryPart, Part, cut
from rlm.context.skipping import Skipped, left_out

__all__ = ["StoredContext"]


class StoredContext:
    """One blob with its kind. Sessions read `chunks`; people and models get `description`."""

    def __init__(
        self,
        kind: Literal["text", "json", "bytes"],
        data: bytes | Sequence[Part],
        description: str,
        *,
        size_bytes: int | None = None,
        sha256: str | None = None,
        documents: tuple[str, ...] = (),
        skipped: tuple[Skipped, ...] = (),
        remarks: tuple[str, ...] = (),
    ) -> None:
        self.kind: Literal["text", "json", "bytes"] = kind
        self.description = description
        self.documents = documents
        self.skipped = skipped
        self._remarks = remarks
        self._parts = (MemoryPart(data),) if isinstance(data, bytes) else tuple(data)
        if size_bytes is None:
            size_bytes = len(data) if isinstance(data, bytes) else sum(map(len, self._blocks()))
        self.size_bytes = size_bytes
        if sha256 is not None:
            self.sha256 = sha256

    @cached_property
    def sha256(self) -> str:
        """The hash of what travels; of files it was taken while they were described."""
        digest = hashlib.sha256()
        for block in self._blocks():
            digest.update(block)
        return digest.hexdigest()

    @property
    def notices(self) -> tuple[str, ...]:
        """What the caller should be told: one line for each surprise, and what was left out."""
        return (*self._remarks, *left_out(self.skipped))

    @property
    def data(self) -> bytes:
        """The whole blob, in memory."""
        return b"".join(self._blocks())

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        """The blob in pieces of one size; a file that changed is a ConfigError."""
        for part in self._parts:
            part.check()  # all of them first: a session should not be fed half a context
        yield from cut(self._blocks(), chunk_bytes)

    def text(self) -> str:
        """The context as one text, for strategies that read it all; documents by their names."""
        if self.kind == "bytes":
            return self.data.decode("utf-8", "replace")
        text = self.data.decode("utf-8", "surrogatepass")
        if not self.documents:
            return text
        return "\n\n".join(f"=== {name} ===\n{each}" for name, each in json.loads(text).items())

    def preview(self, chars: int) -> str:
        """The beginning of a text, shown to the model only when the caller asks for it."""
        if chars == 0 or self.kind == "bytes":
            return ""
        head = next(cut(self._blocks(), 4 * chars), b"")
        return head.decode("utf-8", "ignore")[:chars]

    def digest(self, query: str) -> str:
        """Names a (query, context) pair the same way on every execution."""
        pair = f"{self.kind}\0{self.sha256}\0{query}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(pair).hexdigest()[:16]

    def _blocks(self) -> Iterator[bytes]:
        return chain.from_iterable(part.blocks() for part in self._parts)
