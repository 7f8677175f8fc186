"""Contexts on disk, each stored once, under the hash of its bytes; unused ones are removed."""

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from rlm.context import StoredContext, restore_source, store_context
from rlm.errors import ConfigError
from rlm.images import Picture, picture_of
from rlm.records.journal.facts import ContextFacts

__all__ = ["ContextFolder"]

_CHUNK_BYTES = 4 << 20
_GRACE_SECONDS = 3_600
_OURS = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{16}")
"""Names of contexts and unfinished ones; other files in the folder are left alone."""


class ContextFolder:
    """A content-addressed folder. Writing blocks: call it from a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, sha256: str) -> bool:
        return self._path(sha256).is_file()

    def put(self, context: StoredContext) -> None:
        """Write a context and its pictures, unless they exist already."""
        for picture in context.pictures.values():
            if not self._touched(picture.sha256):
                self._write(iter((picture.read(),)), picture.sha256)
        if not self._touched(context.sha256):
            self._write(context.chunks(_CHUNK_BYTES), context.sha256)

    def restore(self, facts: ContextFacts) -> StoredContext:
        """Load the context that these facts describe; raise ConfigError if it is gone."""
        if not facts.sha256:
            raise ConfigError("the run ended before its context was stored; pass it again")
        if facts.kind == "source":
            return restore_source(facts.source, facts.sha256, facts.description)
        data = b"".join(self.chunks(facts.sha256))
        pictures = {name: self._picture(sha256) for name, sha256 in facts.pictures.items()}
        if facts.kind == "text":
            found = store_context(data.decode("utf-8", "surrogatepass"))
        else:
            found = StoredContext(facts.kind, data, "")
        if facts.kind == "json" and not _is_same(found := store_context(json.loads(data)), facts):
            found = StoredContext("json", data, "")  # JSON from a file keeps its spacing.
        found.description, found.documents = facts.description, facts.documents
        found.pictures, found.name = pictures, facts.name
        return found

    def _picture(self, sha256: str) -> Picture:
        picture = picture_of(b"".join(self.chunks(sha256)))
        if picture is None:
            raise ConfigError(f"{sha256[:12]}… of this run is no longer a picture; pass it again")
        return picture

    def _touched(self, sha256: str) -> bool:
        """Return whether it exists, and mark it as recent, so that it is not removed now."""
        try:
            os.utime(self._path(sha256))
        except OSError:
            return False
        return True

    def chunks(self, sha256: str) -> Iterator[bytes]:
        """Yield its bytes; raise ConfigError if it is gone or has changed."""
        digest = hashlib.sha256()
        try:
            with self._path(sha256).open("rb") as file:
                while piece := file.read(_CHUNK_BYTES):
                    digest.update(piece)
                    yield piece
        except OSError as error:
            raise ConfigError(
                f"the context {sha256[:12]}… of this run is gone ({error.strerror}); pass it again"
            ) from error
        if digest.hexdigest() != sha256:
            raise ConfigError(f"the context {sha256[:12]}… of this run has changed; pass it again")

    def remove(self, sha256: str) -> None:
        """Remove a context that exists elsewhere or can be made again."""
        self._path(sha256).unlink(missing_ok=True)

    def remove_unnamed(self, named: Collection[str]) -> list[str]:
        """Remove what no run uses, except recent ones, which a new run may be about to use."""
        removed = []
        newest = time.time() - _GRACE_SECONDS
        for each in self._folder.iterdir() if self._folder.is_dir() else ():
            if not _OURS.fullmatch(each.name) or each.name in named:
                continue
            if each.lstat().st_mtime < newest:
                each.unlink(missing_ok=True)
                removed.append(each.name)
        return removed

    def _write(self, chunks: Iterator[bytes], sha256: str) -> None:
        """Write under another name first, so that a file with the right name is complete."""
        unfinished = self._folder / f".{secrets.token_hex(8)}"
        try:
            fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
            unfinished.rename(self._path(sha256))
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise ConfigError(
                f"the context can't be stored for resuming: {error.strerror}; free some space in "
                f"{self._folder}, or run without a journal"
            ) from error

    def _path(self, sha256: str) -> Path:
        if len(sha256) != 64 or not sha256.isalnum():
            raise ConfigError(f"{sha256[:80]!r} is not the hash of a context")
        return self._folder / sha256


def _is_same(context: StoredContext, facts: ContextFacts) -> bool:
    return context.kind == facts.kind and context.sha256 == facts.sha256
