"""Writing a file so that nobody ever sees half of it, and nobody else can read it."""

import contextlib
import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

__all__ = ["replacing"]

NAME_CHARS = 100
"""Of the name that is replaced, in that of the unfinished file: names have a limit."""


@contextlib.contextmanager
def replacing(path: Path) -> Generator[BinaryIO, None, None]:
    """A new file beside `path`, which takes its name when the block ends; then it is on disk.

    If the block raises, what was there stays as it is, and nothing is left beside it.
    """
    unfinished = path.with_name(f".{path.name[:NAME_CHARS]}.{secrets.token_hex(8)}")
    fd = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:  # Ctrl-C too: it is raised again.
        unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """So that the new name survives a power cut too, where a folder can be synced."""
    with contextlib.suppress(OSError, AttributeError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
