"""The file of a saved chat: a zip archive, written as a whole and read with suspicion."""

import hashlib
import os
import shutil
import struct
import weakref
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from msgspec.structs import replace

from rlm._util import files
from rlm._util.atomic import replacing
from rlm.chat.saved import (
    ABOUT,
    DEFLATED_BYTES,
    MAX_ABOUT_BYTES,
    MAX_MEMBERS,
    MAX_VARIABLES_BYTES,
    TEXTS,
    VARIABLES,
    About,
    SavedContext,
    about_from,
    about_to_bytes,
)
from rlm.context import StoredContext, restore_source
from rlm.errors import ConfigError
from rlm.images import MAX_IMAGE_BYTES, Picture, picture_of

__all__ = ["SavedFile", "write_saved"]

BLOCK_BYTES = 1 << 17
MAX_TEXTS_BYTES = 1 << 30
MAX_DIRECTORY_BYTES = 8 << 20
UNPACKED_BYTES, UNPACKED_RATIO = 1 << 30, 200
"""A file that unpacks to more than this, at a higher ratio than text has, is refused."""

_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    struct.error,
)


class _Reader:
    """A file that several readers use at once. It closes itself when it is garbage collected."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | files.CLOEXEC | files.NONBLOCK | files.BINARY)
        self._close = weakref.finalize(self, os.close, self._fd)
        self.size = os.fstat(self._fd).st_size
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        wanted = self.size - self._at if size is None or size < 0 else size
        data = files.read_at(self._fd, max(0, wanted), self._at)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise EOFError("a position before the beginning")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        """Close the file; its descriptor may be reused, so it must not be read any more."""
        self._fd = -1
        self._close()

    def seekable(self) -> bool:
        return True


@dataclass(frozen=True)
class _Member:
    """Part of a stored context: a member of the file, checked against its size and hash."""

    file: "SavedFile"
    name: str
    size_bytes: int
    sha256: str

    def check(self) -> None: ...

    def blocks(self) -> Iterator[bytes]:
        digest, size = hashlib.sha256(), 0
        for block in self.file.blocks(self.name):
            digest.update(block)
            size += len(block)
            yield block
        if size != self.size_bytes or (self.sha256 and digest.hexdigest() != self.sha256):
            raise ConfigError(f"{self.file.path}: {self.name} is damaged")


class SavedFile:
    """An open file: its description, and its contents piece by piece."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._reader = _Reader(path)
        except OSError as error:
            raise ConfigError(f"{path} can't be opened: {error.strerror}") from error
        try:
            with self._understood():
                _check_end(self._reader)
                self._archive = zipfile.ZipFile(cast("IO[bytes]", self._reader))
            self._sizes = self._checked_members()
            self.about: About = about_from(self._whole(ABOUT, MAX_ABOUT_BYTES))
            self._check_contexts()
        except ConfigError as error:
            self.close()
            if str(path) in str(error):
                raise
            raise ConfigError(f"{path}: {error}") from error

    def close(self) -> None:
        """Close the file; calling it twice is harmless."""
        self._reader.close()

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a member."""
        with self._understood(), self._archive.open(name) as member:
            while block := member.read(BLOCK_BYTES):
                yield block

    def texts(self) -> list[tuple[str, str | None]]:
        """Return the queries and answers of all turns."""
        data, at, found = self._whole(TEXTS, MAX_TEXTS_BYTES), 0, []
        for turn in self.about.turns:
            sizes = (turn.query_bytes, turn.answer_bytes or 0)
            if min(sizes) < 0 or at + sum(sizes) > len(data):
                raise ConfigError(f"{self.path}: its turns are damaged")
            middle, end = at + sizes[0], at + sum(sizes)
            answer = None if turn.answer_bytes is None else _text(data[middle:end], self.path)
            found.append((_text(data[at:middle], self.path), answer))
            at = end
        return found

    def contexts(self) -> dict[str, StoredContext]:
        """Return all contexts; their bytes are read when they are used."""
        return {
            facts.name: self._context(number, facts)
            for number, facts in enumerate(self.about.contexts)
        }

    def variables(self) -> StoredContext:
        """Return the bytes that only a sandbox may unpickle, in a form that a session can load."""
        size = self._sizes.get(VARIABLES, 0)
        if size > MAX_VARIABLES_BYTES:
            raise ConfigError(f"{self.path}: its variables are too large")
        parts = [_Member(self, VARIABLES, size, "")] if size else []
        return StoredContext("bytes", parts, "", size_bytes=size)

    # -- checks --------------------------------------------------------------------------------

    @contextmanager
    def _understood(self) -> Generator[None, None, None]:
        try:
            yield
        except _DAMAGED as error:
            raise ConfigError(f"{self.path} is not a saved chat, or is damaged: {error}") from error
        except OSError as error:
            raise ConfigError(f"{self.path} can't be read: {error.strerror}") from error
        except KeyError as error:
            raise ConfigError(f"{self.path} is not a saved chat: it lacks {error}") from error

    def _checked_members(self) -> dict[str, int]:
        """Return names and sizes; refuse a file that would unpack to far more than its size."""
        members = self._archive.infolist()
        sizes = {each.filename: each.file_size for each in members}
        packed = sum(each.compress_size for each in members)
        unpacked = sum(sizes.values())
        if len(sizes) != len(members) or len(members) > MAX_MEMBERS:
            raise ConfigError("it contains a name twice, or too many names")
        if packed > self._reader.size:
            raise ConfigError("its members overlap")
        for each in members:
            stored = each.compress_type == zipfile.ZIP_STORED
            if stored and each.file_size != each.compress_size:
                raise ConfigError(f"the size of {each.filename!r} is wrong")
            if not stored and (
                each.compress_type != zipfile.ZIP_DEFLATED or each.file_size > DEFLATED_BYTES
            ):
                raise ConfigError(
                    f"{each.filename!r} was compressed in a way that rlm does not use"
                )
        if unpacked > UNPACKED_BYTES and unpacked > UNPACKED_RATIO * self._reader.size:
            raise ConfigError(
                f"it would unpack to {unpacked:,} bytes from {self._reader.size:,}; such files are "
                "made to fill disks"
            )
        return sizes

    def _check_contexts(self) -> None:
        about = self.about
        names = [each.name for each in about.contexts]
        first = [name for name in names if not name.startswith("history_")]
        wanted = ["context", *(f"context_{number}" for number in range(1, len(first)))]
        known = {*wanted, *(f"history_{number}" for number in range(len(about.turns)))}
        if first != wanted[: len(first)] or len(set(names)) != len(names) or set(names) - known:
            raise ConfigError("the names of its contexts are wrong")
        for number, facts in enumerate(about.contexts):
            if self._sizes.get(f"contexts/{number}") != facts.size_bytes:
                raise ConfigError(f"the size of {facts.name} is wrong")
            for index in range(len(facts.pictures)):
                if not 0 < self._sizes.get(f"pictures/{number}/{index}", 0) <= MAX_IMAGE_BYTES:
                    raise ConfigError(f"the pictures of {facts.name} are damaged")
        if about.variables and about.variables.size_bytes != self._sizes.get(VARIABLES, 0):
            raise ConfigError("the size of its variables is wrong")

    def _whole(self, name: str, max_bytes: int) -> bytes:
        if self._sizes.get(name, 0) > max_bytes:
            raise ConfigError(f"{name} is too large")
        return b"".join(self.blocks(name))

    def _context(self, number: int, facts: SavedContext) -> StoredContext:
        if facts.kind == "source":
            return restore_source(facts.source, facts.sha256, facts.description)
        part = _Member(self, f"contexts/{number}", facts.size_bytes, facts.sha256)
        return StoredContext(
            facts.kind,
            [part],
            facts.description,
            size_bytes=facts.size_bytes,
            sha256=facts.sha256,
            documents=facts.documents,
            pictures={
                name: self._picture(f"pictures/{number}/{index}")
                for index, name in enumerate(facts.pictures)
            },
        )

    def _picture(self, member: str) -> Picture:
        def read() -> bytes:
            return self._whole(member, MAX_IMAGE_BYTES)

        picture = picture_of(read(), read)
        if picture is None:
            raise ConfigError(f"{self.path}: {member} is not a picture")
        return picture


def _text(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: its texts are damaged") from error


def _check_end(reader: _Reader) -> None:
    """Check the list of members at the end of the file before reading it: it may be huge."""
    if reader.size < _END.size:
        raise zipfile.BadZipFile("it is too short")
    reader.seek(-_END.size, os.SEEK_END)
    magic, _, _, _, count, size, _, comment = _END.unpack(reader.read(_END.size))
    if magic != b"PK\5\6" or comment:
        raise zipfile.BadZipFile("its end is not that of a zip file")
    reader.seek(0, os.SEEK_END)
    before = _END.size + _LOCATOR.size
    if reader.size >= before + _END_64.size:
        reader.seek(-before, os.SEEK_END)
        if reader.read(4) == b"PK\6\7":
            reader.seek(-before - _END_64.size, os.SEEK_END)
            end = _END_64.unpack(reader.read(_END_64.size))
            count, size = max(count, end[7]), max(size, end[8])
    if count > MAX_MEMBERS or size > MAX_DIRECTORY_BYTES:
        raise zipfile.BadZipFile("its list of contents is too long")
    reader.seek(0)


CHUNK_BYTES = 1 << 20
LEVEL = 1
LARGE_BYTES = 1 << 30
"""Members from this size need 64-bit sizes, which must be announced before writing."""


def write_saved(
    path: Path,
    about: About,
    texts: Iterable[bytes],
    contexts: Mapping[str, StoredContext],
    variables: IO[bytes] | None,
) -> None:
    """Write a saved chat, readable by its owner only. It blocks: call it in a thread."""
    described = tuple(_facts(name, stored) for name, stored in contexts.items())
    try:
        with replacing(path) as file, zipfile.ZipFile(file, "w", compresslevel=LEVEL) as archive:
            _write(archive, about, described, texts, contexts, variables)
    except OSError as error:
        raise ConfigError(f"the chat can't be saved to {path}: {error.strerror}") from error


def _facts(name: str, stored: StoredContext) -> SavedContext:
    if stored.source is not None and stored.source.spec is None:
        raise ConfigError(
            "a chat about frames, or about a database whose URL has a password, can't be saved: no "
            "file keeps those. Start it with a Parquet file, or with '$NAME' of a variable"
        )
    return SavedContext(
        name=name,
        kind=stored.kind,
        size_bytes=stored.size_bytes,
        sha256=stored.sha256,
        description=stored.description,
        documents=stored.documents,
        pictures=tuple(stored.pictures),
        source=None if stored.source is None else stored.source.spec,
    )


def _write(
    archive: zipfile.ZipFile,
    about: About,
    described: tuple[SavedContext, ...],
    texts: Iterable[bytes],
    contexts: Mapping[str, StoredContext],
    variables: IO[bytes] | None,
) -> None:
    data = about_to_bytes(replace(about, contexts=described))
    _add(archive, ABOUT, (data,), len(data))
    held = list(texts)
    _add(archive, TEXTS, held, sum(map(len, held)))
    for number, stored in enumerate(contexts.values()):
        _add(archive, f"contexts/{number}", stored.chunks(CHUNK_BYTES), stored.size_bytes)
        for index, picture in enumerate(stored.pictures.values()):
            _add(archive, f"pictures/{number}/{index}", (picture.read(),), picture.size_bytes)
    if variables is not None:
        size = variables.seek(0, os.SEEK_END)
        variables.seek(0)
        with _member(archive, VARIABLES, size) as member:
            shutil.copyfileobj(variables, member, CHUNK_BYTES)


def _add(archive: zipfile.ZipFile, name: str, chunks: Iterable[bytes], size: int) -> None:
    with _member(archive, name, size) as member:
        for chunk in chunks:
            member.write(chunk)


def _member(archive: zipfile.ZipFile, name: str, size: int) -> IO[bytes]:
    archive.compression = zipfile.ZIP_DEFLATED if size <= DEFLATED_BYTES else zipfile.ZIP_STORED
    return archive.open(name, "w", force_zip64=size > LARGE_BYTES)
