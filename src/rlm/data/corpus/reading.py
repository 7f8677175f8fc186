"""Read parts of source files, which must be the files that were indexed."""

import os
from pathlib import Path
from typing import BinaryIO

from rlm.data.corpus.catalog import Document
from rlm.data.filesystem.opening import Stamp, display_path, open_regular
from rlm.errors import ConfigError

__all__ = ["SourceChanged", "open_source", "read_part", "whole_characters"]

_CONTINUATION = 0b1000_0000


class SourceChanged(ConfigError):
    """A source file is gone, or is not the one that was indexed."""


def open_source(path: Path, stamp: Stamp, name: str = "") -> BinaryIO:
    """Open a source file; SourceChanged if it is no longer the indexed file.

    Sources are real paths, so a path with a link in it was replaced since. `name` is the name of
    the document for people and models.
    """
    try:
        same = os.path.realpath(path) == os.fspath(path)
        file, now = open_regular(path)
    except (ConfigError, OSError, ValueError) as error:
        raise _changed(name or path, "can no longer be read") from error
    if now != stamp or not same:
        file.close()
        raise _changed(name or path, "changed since it was indexed")
    return file


def read_part(document: Document, start: int, end: int) -> bytes:
    """Return bytes of the file of a document."""
    with open_source(document.path, document.stamp, document.name) as file:
        try:
            file.seek(start)
            return file.read(max(0, end - start))
        except OSError as error:
            raise _changed(document.name, "can no longer be read") from error


def whole_characters(part: bytes, *, is_first: bool, is_last: bool) -> tuple[int, int]:
    """Return where the whole characters in part of a text begin and end."""
    first, last = 0, len(part)
    if not is_first:
        while first < min(3, last) and part[first] & 0b1100_0000 == _CONTINUATION:
            first += 1
    if not is_last:
        at = last - 1
        while at >= max(first, last - 4) and part[at] & 0b1100_0000 == _CONTINUATION:
            at -= 1
        if at >= first and part[at] >= 0b1100_0000:
            needed = 2 if part[at] < 0b1110_0000 else 3 if part[at] < 0b1111_0000 else 4
            last = last if last - at >= needed else at
    return first, last


def _changed(path: Path | str, what: str) -> SourceChanged:
    return SourceChanged(f"{display_path(path)} {what}; run rlm index again")
