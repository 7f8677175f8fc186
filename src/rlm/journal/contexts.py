"""Contexts on disk, each once, under the hash of its bytes; those that no run names are removed."""

import hashlib
import os
import secrets
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from rlm.context import StoredContext
from rlm.errors import ConfigError

__all__ = ["ContextFolder"]

_CHUNK_BYTES = 4 << 20
_GRACE_SECONDS = 3_600


class ContextFolder:
    """A content-addressed folder. Writing blocks: call it from a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, sha256: str) -> bool:
        return self._path(sha256).is_file()

    def put(self, context: StoredContext) -> str:
        """Write a context unless it is there; returns its hash."""
        sha256 = context.sha256
        if not self.has(sha256):
            self._write(context, sha256)
        return sha256

    def chunks(self, sha256: str) -> Iterator[bytes]:
        """Its bytes; ConfigError if it is gone or not what it was."""
        digest = hashlib.sha256()
        try:
            with self._path(sha256).open("rb") as file:
                while piece := file.read(_CHUNK_BYTES):
                    digest.update(piece)
                    yield piece
        except OSError as error:
            raise ConfigError(
                f"the context {sha256[:12]}… of this run is gone ({error.strerror}); give it again"
            ) from error
        if digest.hexdigest() != sha256:
            raise ConfigError(f"the context {sha256[:12]}… of this run was changed; give it again")

    def remove_unnamed(self, named: Collection[str]) -> list[str]:
        """Remove what no run names; not the newest, whose runs may be about to name them."""
        removed = []
        newest = time.time() - _GRACE_SECONDS
        for each in self._folder.iterdir() if self._folder.is_dir() else ():
            if each.name not in named and each.lstat().st_mtime < newest:
                each.unlink(missing_ok=True)
                removed.append(each.name)
        return removed

    def _write(self, context: StoredContext, sha256: str) -> None:
        """Under another name first, so that what has the right name is whole."""
        unfinished = self._folder / f".{secrets.token_hex(8)}"
        try:
            fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "wb") as file:
                for chunk in context.chunks(_CHUNK_BYTES):
                    file.write(chunk)
            unfinished.rename(self._path(sha256))
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise ConfigError(
                f"the context can't be kept for resuming: {error.strerror}; make room in "
                f"{self._folder}, or run without a journal"
            ) from error

    def _path(self, sha256: str) -> Path:
        if len(sha256) != 64 or not sha256.isalnum():
            raise ConfigError(f"{sha256[:80]!r} is no hash of a context")
        return self._folder / sha256
