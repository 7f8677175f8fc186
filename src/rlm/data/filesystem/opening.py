"""Open files that may be hostile, and decode text."""

import codecs
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rlm._util.lazy import pattern
from rlm.errors import ConfigError

__all__ = [
    "SAMPLE_BYTES",
    "Stamp",
    "blocks_of",
    "check_unchanged",
    "decoded",
    "display_path",
    "encoding_of",
    "head_of",
    "is_folder",
    "is_utf8",
    "looks_binary",
    "open_regular",
    "tail_of",
    "unreadable",
]

SAMPLE_BYTES = 8192
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1b"))
_MAX_CONTROLS = 0.1


def encoding_of(sample: bytes) -> str:
    """Return the encoding that the beginning of a file shows; the mark stays in the text."""
    return next((name for mark, name in _MARKS if sample.startswith(mark)), "utf-8")


def decoded(blocks: Iterable[bytes], encoding: str) -> Iterator[str]:
    """Yield the text of consecutive blocks; only UTF-16 and UTF-32 can raise UnicodeDecodeError."""
    errors = "surrogateescape" if encoding == "utf-8" else "surrogatepass"
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    for block in blocks:
        yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def looks_binary(sample: bytes) -> bool:
    """Return whether the beginning of a file has a NUL or many other control characters."""
    if encoding_of(sample) != "utf-8":
        return False
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return b"\0" in sample or controls > _MAX_CONTROLS * len(sample)


def is_utf8(sample: bytes) -> bool:
    """Return whether the beginning of a file is UTF-8; its last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return True


_WAS_ADDRESS = pattern(r"(?:s3|gs|az|hf|https?):/(?!/)")
READ_BYTES = 1 << 18
SHOWN_CHARS = 200
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_SPECIAL = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Stamp(NamedTuple):
    """Size and times that show whether a file is still the one that was described."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Stamp":
        return cls(status.st_size, status.st_mtime_ns)


def open_regular(path: Path) -> tuple[BinaryIO, Stamp]:
    """Open a regular file; refuse anything else before it can block."""
    try:
        _refuse_special(path, path.stat().st_mode)
        descriptor = os.open(path, _OPEN_FLAGS)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    handle = os.fdopen(descriptor, "rb")
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):  # it has been replaced
        handle.close()
        _refuse_special(path, status.st_mode)
    return handle, Stamp.of(status)


def blocks_of(path: Path, stamp: Stamp) -> Iterator[bytes]:
    """Read a file again, block by block; it must be unchanged to its last byte."""
    handle, now = open_regular(path)
    with handle:
        if now != stamp:
            raise _changed(path)
        try:
            while block := handle.read(READ_BYTES):
                yield block
        except OSError as error:
            raise unreadable(path, error) from error
        if Stamp.of(os.fstat(handle.fileno())) != stamp:
            raise _changed(path)


def is_folder(path: Path) -> bool:
    """Return whether a path leads to a folder; raise ConfigError if it leads nowhere."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def head_of(path: Path, size: int) -> tuple[bytes, Stamp]:
    """Return the first bytes of a file, and its stamp at that time."""
    handle, stamp = open_regular(path)
    with handle:
        try:
            return handle.read(size), stamp
        except OSError as error:
            raise unreadable(path, error) from error


def tail_of(path: Path, stamp: Stamp, size: int) -> bytes:
    """Return the last bytes of a file, which must be unchanged."""
    handle, now = open_regular(path)
    with handle:
        if now != stamp:
            raise _changed(path)
        try:
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - size))
            return handle.read(size)
        except OSError as error:
            raise unreadable(path, error) from error


def check_unchanged(path: Path, stamp: Stamp) -> None:
    """Raise if a file is gone or has changed."""
    try:
        now = Stamp.of(path.stat())
    except OSError as error:
        raise unreadable(path, error) from error
    if now != stamp:
        raise _changed(path)


def unreadable(path: Path, error: OSError | ValueError) -> ConfigError:
    """Return the message for a file or folder that cannot be read."""
    if isinstance(error, ConfigError):
        return error
    number = error.errno if isinstance(error, OSError) else None
    if number in {errno.ENOENT, errno.ENOTDIR}:
        if _WAS_ADDRESS.match(path.as_posix()):
            return ConfigError(
                f"no such file or folder: {display_path(path)}; for an address, pass place(…) with "
                "a string, because a Path drops a slash"
            )
        return ConfigError(f"no such file or folder: {display_path(path)}; check the path")
    if number in {errno.EACCES, errno.EPERM}:
        return ConfigError(
            f"no permission to read {display_path(path)}; change its mode or its owner"
        )
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ConfigError(f"{display_path(path)} can't be read: {reason}")


def display_path(path: Path | str) -> str:
    """Return a path for people: printable and of limited length."""
    text = "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(path)
    )
    return text if len(text) <= SHOWN_CHARS else f"…{text[-SHOWN_CHARS:]}"


def _changed(path: Path) -> ConfigError:
    return ConfigError(f"{display_path(path)} changed after you passed it; ask again")


def _refuse_special(path: Path, mode: int) -> None:
    for is_it, what in _SPECIAL:
        if is_it(mode):
            raise ConfigError(
                f"{display_path(path)} is {what}, not a file; read it first and pass its content"
            )
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{display_path(path)} is not a regular file; pass a file or a folder")
