"""Replace whole files atomically; only the owner can read them, unless a mode says otherwise."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from rlm._util.disks import is_full
from rlm._util.files import BINARY

__all__ = ["replacing"]

NAME_CHARS = 100
"""How much of the old name the unfinished file's name contains: names have a maximum length."""


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o600) -> Generator[BinaryIO, None, None]:
    """Open a new file beside `path` that replaces it when the block ends, after a sync to disk.

    The umask restricts `mode`. If the block raises, `path` stays unchanged, and nothing is left
    beside it.
    """
    unfinished = path.with_name(f".{path.name[:NAME_CHARS]}.{os.urandom(8).hex()}")
    with _named(path, unfinished):
        yield from _replacing(path, unfinished, mode)


def _replacing(path: Path, unfinished: Path, mode: int) -> Generator[BinaryIO, None, None]:
    fd = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | BINARY, mode)
    try:
        with os.fdopen(fd, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:  # Ctrl-C too; raised again.
        unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


@contextlib.contextmanager
def _named(path: Path, unfinished: Path) -> Generator[None, None, None]:
    """Let errors of the unfinished file, or of a full disk, name the file asked for."""
    try:
        yield
    except OSError as error:
        if error.filename is None and is_full(error):
            error.filename = str(path)
        elif str(error.filename) == str(unfinished):
            error.filename, error.filename2 = str(path), None
        raise


def _sync_folder(folder: Path) -> None:
    """Sync the folder if possible, so that the new name survives a power failure."""
    with contextlib.suppress(OSError, AttributeError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
