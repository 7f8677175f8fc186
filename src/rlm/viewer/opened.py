"""Files that users open in the page: copied here, shown like any other log, and removed again."""

import asyncio
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rlm.viewer.contexts import Contexts
from rlm.viewer.library import MAX_KEPT_EVENTS, Busy, Library, OneFile, Threads, TooLarge, Unknown
from rlm.viewer.routes import LibraryView

__all__ = ["MAX_FILE_BYTES", "OpenedFiles"]

MAX_FILE_BYTES = 500_000_000
MAX_TOTAL_BYTES = 1_000_000_000
MAX_FILES = 10
MAX_UPLOADS = 4
STALL_SECONDS = 30.0
"""How long a client may send nothing in the middle of a file."""

PORTION_BYTES = 1 << 20
NAME_CHARS = 100
DEFAULT_NAME = "log.jsonl"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class OpenedFiles:
    """The opened files of one viewer, by ids that can't be guessed.

    If there are too many, or they are too large together, the least recently used ones are removed.
    Use it on the event loop only.
    """

    def __init__(self, contexts: Contexts, threads: Threads) -> None:
        self._contexts = contexts
        self._threads = threads
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: dict[str, _OpenedFile] = {}  # Least recently used first.
        self._uploads: dict[str, _Upload] = {}

    async def add(self, name: str, size_bytes: int | None, chunks: AsyncIterator[bytes]) -> str:
        """Copy a file and return its id. `size_bytes` is the size that the client claims."""
        if size_bytes is not None and size_bytes > MAX_FILE_BYTES:
            raise TooLarge(_too_large())
        if len(self._uploads) >= MAX_UPLOADS:
            raise Busy(f"{MAX_UPLOADS} files are being opened; wait for one of them")
        opened_id = secrets.token_urlsafe(24)
        try:
            upload = _Upload(self._new_folder(opened_id), name)
            self._uploads[opened_id] = upload
            await self._receive(opened_id, upload, chunks)
        except OSError as error:
            raise Busy(
                f"the file can't be copied: {error.strerror or error}; open it with `rlm view FILE`"
            ) from error
        return opened_id

    async def _receive(
        self, opened_id: str, upload: "_Upload", chunks: AsyncIterator[bytes]
    ) -> None:
        try:
            await self._write(upload, chunks)
            file = _OpenedFile(upload, self._contexts, self._threads)
            await self._threads.run(file.view.library.start)
            self._files[opened_id] = file
        finally:
            del self._uploads[opened_id]
            upload.file.close()
            if opened_id not in self._files:
                _remove(upload.path)
        self._make_room(keep=1)

    async def _write(self, upload: "_Upload", chunks: AsyncIterator[bytes]) -> None:
        portion = bytearray()
        async for chunk in _unless_stalled(chunks):
            portion += chunk
            upload.size_bytes += len(chunk)
            if upload.size_bytes > MAX_FILE_BYTES:
                raise TooLarge(_too_large())
            self._make_room()
            if self._is_full():
                raise Busy("the files being opened are too large together; try again in a moment")
            if len(portion) >= PORTION_BYTES:
                await self._threads.run(upload.file.write, bytes(portion))
                portion.clear()
        await self._threads.run(upload.finish, bytes(portion))

    def _new_folder(self, opened_id: str) -> Path:
        """Return a new folder that only this user can read; it is removed at exit at the latest."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(
                prefix="rlm-view-", ignore_cleanup_errors=True
            )
        folder = Path(self._folder.name, opened_id)
        folder.mkdir()
        return folder

    def _make_room(self, *, keep: int = 0) -> None:
        """Remove the least recently used files until the others fit."""
        while len(self._files) > keep and self._is_full():
            self.remove(next(iter(self._files)))

    def _is_full(self) -> bool:
        files = self._files.values()
        size_bytes = sum(each.size_bytes for each in files)
        size_bytes += sum(each.size_bytes for each in self._uploads.values())
        events = sum(each.view.library.events for each in files)
        return len(files) > MAX_FILES or size_bytes > MAX_TOTAL_BYTES or events > MAX_KEPT_EVENTS

    def find(self, opened_id: str) -> LibraryView:
        """Return the view of a file, and count this as a use."""
        file = self._files.pop(opened_id, None)
        if file is None:
            raise Unknown("this file is no longer open; open it again")
        self._files[opened_id] = file
        self._make_room(keep=1)
        return file.view

    def remove(self, opened_id: str) -> None:
        """Close a file and remove its copy; ignore a file that is not open."""
        file = self._files.pop(opened_id, None)
        if file is not None:
            file.view.end()
            _remove(file.path)

    def close(self) -> None:
        """Remove all files."""
        for opened_id in list(self._files):
            self.remove(opened_id)
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class _Upload:
    """A file that is being received."""

    def __init__(self, folder: Path, name: str) -> None:
        self.title = re.split(r"[/\\]", name)[-1][:NAME_CHARS] or DEFAULT_NAME
        self.path = folder / _safe_name(self.title)
        self.file: BinaryIO = self.path.open("xb")
        self.size_bytes = 0

    def finish(self, rest: bytes) -> None:
        with self.file:
            self.file.write(rest)
        # A copy does not grow, so its unfinished runs must not count as running.
        os.utime(self.path, (0, 0))


class _OpenedFile:
    """A file that was received completely."""

    def __init__(self, upload: _Upload, contexts: Contexts, threads: Threads) -> None:
        self.path = upload.path
        self.size_bytes = upload.size_bytes
        library = Library(OneFile(upload.path, upload.title))
        self.view = LibraryView(library, contexts, threads)


async def _unless_stalled(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(STALL_SECONDS):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Busy("the file did not arrive in time; try again") from None
        yield chunk


def _remove(path: Path) -> None:
    """Remove a copy and its folder. A thread that is still reading it finds its end at once."""
    with suppress(OSError):
        os.truncate(path, 0)
    shutil.rmtree(path.parent, ignore_errors=True)


def _safe_name(title: str) -> str:
    """Return a name for the copy; the reference engine's runs are named after their file."""
    return _UNSAFE.sub("_", title).strip("._") or DEFAULT_NAME


def _too_large() -> str:
    return (
        f"the file is larger than {MAX_FILE_BYTES // 1_000_000:,} MB, which is too large to be "
        "copied; open it with `rlm view FILE`"
    )
