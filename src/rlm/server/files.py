"""Files that clients upload to be contexts: private, per token, limited in size, and not for ever.

Every file is a folder named by its id, with `about.json` and the bytes in it. Ids are made here and
checked by a pattern, so that nothing a client says becomes a path.
"""

import asyncio
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from rlm.server.errors import bad_request, not_found, too_large
from rlm.server.settings import Settings
from rlm.server.tokens import Token
from rlm.text import sendable

__all__ = ["Files", "StoredFile"]

DAY_SECONDS = 86_400
MOST_NAME_BYTES = 200
MOST_FILES = 10_000
SWEEP_SECONDS = 600.0
_ID = re.compile(r"file-[0-9a-f]{24}")
_UNSAFE = re.compile(r"[^\w.()+ -]+")


class StoredFile(Struct, frozen=True, kw_only=True):
    """What is known of a file, as OpenAI tells it."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    expires_at: int | None = None


class Files:
    """Below one folder, which only the server's user can read."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.folder / "files"
        self._laid_out = settings.folder / "laid-out"
        self._settings = settings
        self._swept = 0.0
        for folder in (self._folder, self._laid_out):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._laid_out.iterdir():  # by a server that was killed
            shutil.rmtree(left, ignore_errors=True)

    # -- keeping -----------------------------------------------------------------------------

    async def keep(
        self, token: Token, name: str, purpose: str, chunks: AsyncIterator[bytes]
    ) -> StoredFile:
        """Write a file as it comes; nothing of it stays if it is too large or breaks off."""
        await asyncio.to_thread(self.sweep)
        home = self._home(token)
        used, count = await asyncio.to_thread(self._size_of, token)
        if count >= MOST_FILES:
            raise too_large(f"{MOST_FILES:,} files are kept already; delete some of them")
        room = min(self._settings.max_file_bytes, self._settings.max_files_bytes - used)
        identity = f"file-{secrets.token_hex(12)}"
        folder = home / f".{identity}"
        folder.mkdir(mode=0o700)
        try:
            size = await self._write(folder / "data", chunks, room)
            now = int(time.time())
            about = StoredFile(
                id=identity,
                bytes=size,
                created_at=now,
                filename=sendable(name)[:MOST_NAME_BYTES] or "file",
                purpose=purpose,
                expires_at=now + int(self._settings.file_days * DAY_SECONDS),
            )
            (folder / "about.json").write_bytes(msgspec.json.encode(about))
            folder.rename(home / identity)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return about

    async def _write(self, path: Path, chunks: AsyncIterator[bytes], room: int) -> int:
        size = 0
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "wb") as file:
            async for chunk in chunks:
                size += len(chunk)
                if size > room:
                    raise too_large(
                        f"a file may have {self._settings.max_file_bytes:,} bytes, and all files "
                        f"together {self._settings.max_files_bytes:,}; delete some, or send less"
                    )
                await asyncio.to_thread(file.write, chunk)
        return size

    # -- looking -----------------------------------------------------------------------------

    def get(self, token: Token, identity: str, param: str = "file_id") -> StoredFile:
        """One of this token's files; those of others do not exist for it."""
        about = self._read(self._folder_of(token, identity, param))
        if about is None:
            raise not_found(f"there is no file {identity}", param, "file_not_found")
        return about

    def listed(self, token: Token) -> list[StoredFile]:
        """All of this token's files, the newest first."""
        found = [about for about in map(self._read, self._folders(token)) if about is not None]
        return sorted(found, key=lambda each: (each.created_at, each.id), reverse=True)

    def data_of(self, token: Token, identity: str) -> Path:
        self.get(token, identity)
        return self._folder_of(token, identity, "file_id") / "data"

    def delete(self, token: Token, identity: str) -> None:
        self.get(token, identity)
        shutil.rmtree(self._folder_of(token, identity, "file_id"))

    def sweep(self) -> None:
        """Let go of what has expired, once in a while."""
        if time.monotonic() - self._swept < SWEEP_SECONDS and self._swept:
            return
        self._swept = time.monotonic()
        for home in self._folder.iterdir():
            for folder in list(home.glob("file-*")):
                if self._read(folder) is None:
                    shutil.rmtree(folder, ignore_errors=True)

    # -- using -------------------------------------------------------------------------------

    async def lay_out(
        self, token: Token, identities: list[str], cleanup: AsyncExitStack, param: str
    ) -> list[Path]:
        """The files in a folder of one run, under their own names.

        They are hard links: deleting a file while a run reads it does the run no harm.
        """
        if not identities:
            raise bad_request("no file is named", param)
        for identity in identities:
            self.get(token, identity, param)
        return await asyncio.to_thread(self._link, token, identities, cleanup)

    def _link(self, token: Token, identities: list[str], cleanup: AsyncExitStack) -> list[Path]:
        folder = Path(tempfile.mkdtemp(dir=self._laid_out))
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        paths: list[Path] = []
        for identity in identities:
            about = self.get(token, identity)
            path = folder / _free_name(about.filename, {each.name for each in paths})
            os.link(self.data_of(token, identity), path)
            paths.append(path)
        return paths

    # -- where things are --------------------------------------------------------------------

    def _home(self, token: Token) -> Path:
        home = self._folder / sha256(token.name.encode()).hexdigest()[:32]
        home.mkdir(mode=0o700, exist_ok=True)
        return home

    def _folders(self, token: Token) -> Iterator[Path]:
        return self._home(token).glob("file-*")

    def _folder_of(self, token: Token, identity: str, param: str) -> Path:
        if not _ID.fullmatch(identity):
            raise not_found("there is no such file", param, "file_not_found")
        return self._home(token) / identity

    def _read(self, folder: Path) -> StoredFile | None:
        with suppress(OSError, msgspec.MsgspecError):
            about = msgspec.json.decode((folder / "about.json").read_bytes(), type=StoredFile)
            if about.expires_at is None or about.expires_at > time.time():
                return about
        return None

    def _size_of(self, token: Token) -> tuple[int, int]:
        kept = self.listed(token)
        return sum(each.bytes for each in kept), len(kept)


def _free_name(wanted: str, taken: set[str]) -> str:
    """A harmless file name that ends as the wanted one does: endings tell what a document is."""
    name = _UNSAFE.sub("_", Path(wanted.replace("\\", "/")).name).lstrip(".- ") or "file"
    stem, ending = Path(name).stem[:80], Path(name).suffix[:16]
    number, found = 1, f"{stem}{ending}"
    while found in taken:
        number += 1
        found = f"{stem}-{number}{ending}"
    return found
