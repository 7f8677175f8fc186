"""Lines of a file with their places in it, each at most so long."""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from rlm.records.trajectories.skipped import Skipped

__all__ = ["MOST_LINE_BYTES", "Line", "lines_of"]

MOST_LINE_BYTES = 64 << 20
"""Longer lines are passed over. The longest of our own hold a cell's kept output."""

_CHUNK_BYTES = 1 << 20


class Line(NamedTuple):
    """Where a line starts, where the next one does, and its text; `torn`: it has no line end."""

    start: int
    end: int
    text: bytes
    torn: bool = False


def lines_of(
    file: BinaryIO,
    skipped: Skipped,
    *,
    start: int = 0,
    stop: int | None = None,
    most_bytes: int = MOST_LINE_BYTES,
) -> Iterator[Line]:
    """The lines that start from `start` on and before `stop`, without empty ones.

    One that is too long is counted, and comes without its text.
    """
    at = file.seek(start)
    while stop is None or at < stop:
        text = file.readline(most_bytes + 1)
        if not text:
            return
        ended = text.endswith(b"\n")
        if not ended and len(text) > most_bytes:
            end = at + len(text) + _pass_over(file)
            skipped.add("too long", f"byte {at:,}", f"{end - at:,} bytes")
            yield Line(at, end, b"")
            at = end
            continue
        end = at + len(text)
        if not text.isspace():
            yield Line(at, end, text, torn=not ended)
        at = end


def _pass_over(file: BinaryIO) -> int:
    """Read to the end of the line without keeping it; how many bytes that took."""
    passed = 0
    while chunk := file.readline(_CHUNK_BYTES):
        passed += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return passed
