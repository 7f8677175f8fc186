"""Copies the files that a session wrote to the host.

Names, sizes and the number of files come from the sandbox, so none of them is trusted.
"""

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath

__all__ = ["export_files"]

_LONGEST_NAME_BYTES = 255
_DEEPEST = 50
_MAX_ENTRIES = 8_192
"""Files and folders together: as many as a session's scratch folder can hold."""

_log = logging.getLogger(__name__)

Read = Callable[[str, int], Awaitable[bytes]]
"""Reads a piece of a file, by name and offset; empty at its end."""


async def export_files(
    files: list[tuple[str, int]], read: Read, folder: Path, *, label: str, max_bytes: int
) -> Path | None:
    """Write files to a new folder below `folder` and return it; None if there are no files.

    Files beyond the limits on bytes and number are left out and logged.
    """
    harmless = [name for name, _ in files if _is_harmless(name)]
    names = _within_limit(harmless)
    if not names:
        return None
    target = await asyncio.to_thread(_new_folder, folder, label)
    left, copied = max_bytes, 0
    for name in names:
        if left <= 0:
            break
        left -= await _copy(name, read, target, left)
        copied += 1
    if copied < len(harmless):
        _log.warning("%s contains %d of the %d files of its session", target, copied, len(harmless))
    return target


def _within_limit(names: list[str]) -> list[str]:
    """Return the names up to the limit on entries, which counts their folders too."""
    entries: set[str] = set()
    for position, name in enumerate(names):
        parts = PurePosixPath(name).parts
        entries.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        if len(entries) > _MAX_ENTRIES:
            return names[:position]
    return names


async def _copy(name: str, read: Read, target: Path, left: int) -> int:
    """Copy at most `left` bytes of a file and return how many were copied."""
    copied = 0
    try:
        fd = await asyncio.to_thread(_create, target / name)
    except OSError:
        return 0  # This file system sees two names as one, or one is a folder.
    try:
        while copied < left and (piece := await read(name, copied)):
            copied += await asyncio.to_thread(_write, fd, piece[: left - copied])
    finally:
        os.close(fd)
    return copied


def _create(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _write(fd: int, data: bytes) -> int:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    return len(data)


def _is_harmless(name: str) -> bool:
    """Return whether a name stays inside the folder on every system."""
    parts = PurePosixPath(name).parts
    return (
        0 < len(parts) <= _DEEPEST
        and not name.startswith("/")
        and ".." not in parts
        and re.search(r"[\x00-\x1f\x7f\\:\ud800-\udfff]", name) is None
        and all(len(os.fsencode(part)) <= _LONGEST_NAME_BYTES for part in parts)
    )


def _new_folder(folder: Path, label: str) -> Path:
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", label).strip(".") or "session"
    for number in range(1, 10_000):
        target = folder / (plain if number == 1 else f"{plain}-{number}")
        try:
            target.mkdir(parents=True)
        except FileExistsError:
            continue
        return target
    raise FileExistsError(f"{folder / plain} and thousands more exist already")
