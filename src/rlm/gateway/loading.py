"""The whole text of chosen files, for code and for runs: bounded in number and bytes."""

import os
from collections.abc import Iterable, Sequence

from msgspec import Struct

from rlm.gateway.files import version_of
from rlm.gateway.listing import files_below
from rlm.gateway.paths import Root
from rlm.gateway.refusals import Refused
from rlm.gateway.sessions import GatewaySession, Handle
from rlm.gateway.spans import SNIFFED_BYTES

__all__ = ["Loaded", "Loading", "chosen_files", "load_files"]


class Loaded(Struct, frozen=True):
    """A file as it was when it was read."""

    handle: Handle
    data: bytes
    version: str

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


class Loading(Struct, frozen=True):
    """What was read; `skipped` counts files that are no text, or are gone."""

    files: tuple[Loaded, ...]
    skipped: int


def chosen_files(
    session: GatewaySession,
    handles: Sequence[str],
    root: Root,
    path: tuple[str, ...] | None,
    *,
    ignored: bool,
) -> list[Handle]:
    """The files of these handles, and the file or all files below a folder at `path`."""
    found = {handle: session.handle(handle) for handle in handles}
    if path is not None:
        for parts in _at(root, path, ignored):
            handle = session.handle_for(root, parts)
            found[handle] = session.handle(handle)
            _check_number(len(found), session)
    if not found:
        raise Refused("choose files: handles, or a path")
    _check_number(len(found), session)
    return list(found.values())


def _at(root: Root, path: tuple[str, ...], ignored: bool) -> Iterable[tuple[str, ...]]:
    """A path names a file, or all files below it."""
    if path:
        try:
            os.close(root.open_file(path))
        except Refused:
            pass
        else:
            return [path]
    return (entry.parts for entry in files_below(root, path, ignored=ignored))


def _check_number(number: int, session: GatewaySession) -> None:
    if number > session.ceilings.run_files:
        raise Refused(f"at most {session.ceilings.run_files:,} files at once; choose fewer")


def load_files(handles: Sequence[Handle], most_bytes: int) -> Loading:
    """Read them all; refused if they are larger than allowed together."""
    found, skipped, total = [], 0, 0
    for handle in handles:
        try:
            fd = handle.root.open_file(handle.parts)
        except Refused:
            skipped += 1
            continue
        with os.fdopen(fd, "rb") as file:
            facts = os.fstat(fd)
            is_binary = b"\0" in os.pread(fd, SNIFFED_BYTES, 0)
            is_too_large = total + facts.st_size > most_bytes
            data = b"" if is_binary or is_too_large else file.read(most_bytes - total + 1)
        if is_binary or b"\0" in data:
            skipped += 1
            continue
        total += len(data)
        if is_too_large or total > most_bytes:
            raise Refused(f"these files have more than {most_bytes:,} bytes; choose fewer")
        found.append(Loaded(handle, data, version_of(facts)))
    if not found:
        raise Refused("none of these files is text that can be read")
    return Loading(tuple(found), skipped)
