"""Cut files into pieces for the full-text index, with the offset and line of each."""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from rlm.data.corpus.records import Fields, Record, read_record
from rlm.data.filesystem.skipping import LONG_LINE, NO_RECORD

__all__ = ["PIECE_BYTES", "Line", "TextPiece", "record_pieces", "records_of", "text_pieces"]

PIECE_BYTES = 1 << 18
MAX_LINE_BYTES = 64 << 20
"""A longer line of JSON is left out."""


class TextPiece(NamedTuple):
    """A part of a text: where it starts and ends in its file, its first line, its text."""

    start: int
    end: int
    line: int
    text: str


class Line(NamedTuple):
    """A line of JSON: its bytes in the file, its number from 1, and its record or a problem."""

    start: int
    end: int
    number: int
    record: Record | str


def text_pieces(file: BinaryIO, start: int, line: int, end: int) -> Iterator[TextPiece]:
    """Yield the pieces of a text file from an offset on; `line` lines precede it."""
    file.seek(start)
    while start < end and (block := file.read(min(PIECE_BYTES, end - start))):
        if start + len(block) < end:
            block = _cut(block)
            file.seek(start + len(block))
        yield TextPiece(start, start + len(block), line + 1, block.decode("utf-8", "replace"))
        line += block.count(b"\n")
        start += len(block)


def record_pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield the pieces of a record's text, each with the line it starts on, from 1."""
    line, start = 1, 0
    while True:
        end = start + PIECE_BYTES
        if end < len(text):
            end = (text.rfind("\n", start, end) + 1) or end
        piece = text[start:end]
        yield line, piece
        line += piece.count("\n")
        start = end
        if start >= len(text):
            return


def records_of(file: BinaryIO, start: int, lines: int, end: int, wanted: Fields) -> Iterator[Line]:
    """Yield the lines of a JSON lines file from an offset on; `lines` lines precede it."""
    file.seek(start)
    while start < end and (line := file.readline(min(MAX_LINE_BYTES, end - start))):
        lines += 1
        size = len(line)
        if size == MAX_LINE_BYTES and not line.endswith(b"\n"):
            size += _skip_line(file)
            yield Line(start, start + size, lines, LONG_LINE)
        elif not line.isspace():
            yield Line(start, start + size, lines, read_record(line, wanted) or NO_RECORD)
        start += size


def _cut(block: bytes) -> bytes:
    """Return a block up to its last line end; without one, up to its last whole character."""
    if (newline := block.rfind(b"\n") + 1) > 0:
        return block[:newline]
    size = len(block)
    while size > len(block) - 4 and block[size - 1] & 0xC0 == 0x80:
        size -= 1
    if block[size - 1] & 0xC0 == 0xC0:
        size -= 1
    return block[:size] or block


def _skip_line(file: BinaryIO) -> int:
    skipped = 0
    while part := file.readline(1 << 20):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped
