"""Uploaded files on disk: each belongs to one token, within a quota, for some days."""

import asyncio
import os
import re
import secrets
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from rlm._util.text import sendable
from rlm.server.errors import bad_request, not_found, too_large
from rlm.server.settings import Settings
from rlm.server.tokens import Token

__all__ = ["Files", "StoredFile", "Upload"]

DAY_SECONDS = 86_400
MAX_NAME_BYTES = 200
MAX_FILES = 10_000
SWEEP_SECONDS = 600.0
_ID = re.compile(r"file-[0-9a-f]{24}")
_UNSAFE = re.compile(r"[^\w.()+ -]+")


class StoredFile(Struct, frozen=True, kw_only=True):
    """A file, with the fields that OpenAI reports."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    expires_at: int | None = None

    def has_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= time.time()


class Upload:
    """A file that is arriving. Its bytes are counted before they are written.

    They no longer count if the file is not kept.
    """

    def __init__(self, files: "Files", home: Path) -> None:
        self._files = files
        self._home = home
        self._id = f"file-{secrets.token_hex(12)}"
        self._folder = home / f".{self._id}"
        self._folder.mkdir(mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        self.file = os.fdopen(os.open(self._folder / "data", flags, 0o600), "w+b")
        self.size = 0

    def expect(self, size: int) -> None:
        """Count bytes before they are written; raise ApiError if there is no room for them."""
        self._files._take(self._home, size, self.size)
        self.size += size

    def keep(self, name: str, purpose: str, days: float) -> StoredFile:
        """Finish the upload: from now on it is one of the token's files."""
        self.file.close()
        now = int(time.time())
        about = StoredFile(
            id=self._id,
            bytes=self.size,
            created_at=now,
            filename=sendable(name)[:MAX_NAME_BYTES] or "file",
            purpose=purpose,
            expires_at=now + int(days * DAY_SECONDS),
        )
        (self._folder / "about.json").write_bytes(msgspec.json.encode(about))
        kept = self._files._kept[self._home]
        kept[self._id] = about  # Without it, the folder would be swept away.
        try:
            self._folder.rename(self._home / self._id)
        except BaseException:
            del kept[self._id]
            raise
        self.size = 0
        return about

    def close(self) -> None:
        """Remove a file that was not kept."""
        self.file.close()
        if self._folder.exists():
            shutil.rmtree(self._folder, ignore_errors=True)
            self._files._give_back(self._home, self.size)


class Files:
    """The files of all tokens, in one folder that only the server's user can read.

    What every token stores is listed and counted in memory, together with its uploads in progress,
    so that they share one limit. When a server starts, it reads what is on disk.
    """

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.folder / "files"
        self._laid_out = settings.folder / "laid-out"
        self._settings = settings
        self._swept = 0.0
        self._bytes: Counter[Path] = Counter()
        self._count: Counter[Path] = Counter()
        self._kept: defaultdict[Path, dict[str, StoredFile]] = defaultdict(dict)
        for folder in (self._folder, self._laid_out):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._laid_out.iterdir():  # left by a server that was killed
            shutil.rmtree(left, ignore_errors=True)
        for home in self._folder.iterdir():
            self._recount(home)

    def _recount(self, home: Path) -> None:
        for folder in list(home.iterdir()):
            if _ID.fullmatch(folder.name):
                self._bytes[home] += _size_of(folder)
                self._count[home] += 1
                with suppress(OSError, msgspec.MsgspecError):
                    self._kept[home][folder.name] = msgspec.json.decode(
                        (folder / "about.json").read_bytes(), type=StoredFile
                    )
            else:  # It was arriving, or being deleted, when the server was killed.
                shutil.rmtree(folder, ignore_errors=True)

    # -- keeping -----------------------------------------------------------------------------

    @asynccontextmanager
    async def incoming(self, token: Token) -> AsyncGenerator[Upload, None]:
        """Start an upload; remove it at the end unless it was kept."""
        await self.sweep()
        home = self._home(token)
        if self._count[home] >= MAX_FILES:
            raise too_large(f"{MAX_FILES:,} files are stored already; delete some of them")
        self._count[home] += 1
        self._kept[home]  # Created here, where no other thread does.
        try:
            incoming = Upload(self, home)
        except BaseException:
            self._count[home] -= 1
            raise
        try:
            yield incoming
        finally:
            incoming.close()

    def _take(self, home: Path, size: int, already: int) -> None:
        settings = self._settings
        is_over = self._bytes[home] + size > settings.max_files_bytes
        if already + size > settings.max_file_bytes or is_over:
            raise too_large(
                f"a file may have at most {settings.max_file_bytes:,} bytes, all files together "
                f"{settings.max_files_bytes:,}; delete some, or upload less"
            )
        self._bytes[home] += size

    def _give_back(self, home: Path, size: int) -> None:
        self._bytes[home] -= size
        self._count[home] -= 1

    # -- looking -----------------------------------------------------------------------------

    def get(self, token: Token, identity: str, param: str = "file_id") -> StoredFile:
        """Return one of this token's files; for a token, the files of others do not exist."""
        folder = self._folder_of(token, identity, param)
        about = self._kept[folder.parent].get(identity)
        if about is None or about.has_expired() or not (folder / "data").exists():
            raise not_found(f"there is no file {identity}", param, "file_not_found")
        return about

    def listed(self, token: Token) -> list[StoredFile]:
        """Return all of this token's files, newest first."""
        kept = list(self._kept[self._home(token)].values())
        found = [about for about in kept if not about.has_expired()]
        return sorted(found, key=lambda each: (each.created_at, each.id), reverse=True)

    def data_of(self, token: Token, identity: str) -> Path:
        self.get(token, identity)
        return self._folder_of(token, identity, "file_id") / "data"

    async def delete(self, token: Token, identity: str) -> None:
        about = self.get(token, identity)
        folder = self._folder_of(token, identity, "file_id")
        kept = self._kept[folder.parent]
        kept.pop(identity, None)
        try:
            gone = await asyncio.to_thread(_remove, folder)
        except OSError:
            kept[identity] = about
            raise
        if gone is None:
            raise not_found(f"there is no file {identity}", "file_id", "file_not_found")
        self._give_back(folder.parent, gone)

    async def sweep(self) -> None:
        """Delete expired files once in a while."""
        if time.monotonic() - self._swept < SWEEP_SECONDS and self._swept:
            return
        self._swept = time.monotonic()
        for folder, size in await asyncio.to_thread(self._remove_expired):
            self._kept[folder.parent].pop(folder.name, None)
            self._give_back(folder.parent, size)

    def _remove_expired(self) -> list[tuple[Path, int]]:
        folders = [each for home in self._folder.iterdir() for each in home.glob("file-*")]
        removed = [(folder, _remove(folder)) for folder in folders if self._is_over(folder)]
        return [(folder, size) for folder, size in removed if size is not None]

    def _is_over(self, folder: Path) -> bool:
        """Whether a file has expired, or nothing says what it is."""
        about = self._kept.get(folder.parent, {}).get(folder.name)
        return about is None or about.has_expired()

    # -- using -------------------------------------------------------------------------------

    async def link_files(
        self, token: Token, identities: list[str], cleanup: ExitStack, param: str
    ) -> list[Path]:
        """Link files into a folder for one run, under their own names.

        They are hard links: deleting a file does not disturb a run that reads it.
        """
        if not identities:
            raise bad_request("name at least one file", param)
        for identity in identities:
            self.get(token, identity, param)
        return await asyncio.to_thread(self._link, token, identities, cleanup)

    def _link(self, token: Token, identities: list[str], cleanup: ExitStack) -> list[Path]:
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

    def _folder_of(self, token: Token, identity: str, param: str) -> Path:
        if not _ID.fullmatch(identity):
            raise not_found("there is no such file", param, "file_not_found")
        return self._home(token) / identity


def _size_of(folder: Path) -> int:
    with suppress(OSError):
        return (folder / "data").stat().st_size
    return 0


def _remove(folder: Path) -> int | None:
    """Delete a file and return its size; None if another request has already deleted it."""
    size, aside = _size_of(folder), folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
    try:
        folder.rename(aside)
    except FileNotFoundError:
        return None
    shutil.rmtree(aside, ignore_errors=True)
    return size


def _free_name(wanted: str, taken: set[str]) -> str:
    """Return a harmless file name with the same suffix, which shows the kind of document."""
    name = _UNSAFE.sub("_", Path(wanted.replace("\\", "/")).name).lstrip(".- ") or "file"
    stem, ending = Path(name).stem[:80], Path(name).suffix[:16]
    number, found = 1, f"{stem}{ending}"
    while found in taken:
        number += 1
        found = f"{stem}-{number}{ending}"
    return found
