"""Lists and reads the files that a session wrote, for a host that exports them."""

from __future__ import annotations

import json
import os

from .bounds import MAX_FILES, MAX_FILES_BYTES, MAX_PIECE_BYTES

__all__ = ["PIECE_BYTES", "list_files", "read_piece"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE_BYTES = MAX_PIECE_BYTES


def list_files(folder: str) -> list[list[str | int]]:
    """Return the relative names and sizes of the regular files below a folder, without links."""
    found: list[list[str | int]] = []
    room = MAX_FILES_BYTES
    for path, size in _regular_files(folder):
        name = os.path.relpath(path, folder)
        room -= len(json.dumps([name, size])) + 2  # For a comma and a space.
        if len(found) == MAX_FILES or room < 2:
            break
        found.append([name, size])
    return found


def read_piece(folder: str, name: str, offset: int) -> bytes:
    """Return a piece of such a file, at most `PIECE_BYTES`; empty at its end."""
    fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.pread(fd, PIECE_BYTES, offset)
    finally:
        os.close(fd)


def _regular_files(folder: str) -> Iterator[tuple[str, int]]:
    todo = [folder]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry.path, entry.stat(follow_symlinks=False).st_size
