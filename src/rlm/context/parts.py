"""What a stored blob consists of: bytes in memory, and files that are read anew each time.

A file is turned into what travels (UTF-8 that keeps lone surrogates, or a piece of JSON) while it
is read, so a context of any size needs a few megabytes here.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rlm.context.decode import decoded
from rlm.context.opening import READ_BYTES, Stamp, blocks_of, check_unchanged

__all__ = ["FilePart", "JsonLinesPart", "MemoryPart", "Part", "Seen", "TextPart", "cut", "wire"]

LONGEST_LINE_CHARS = 64 << 20
Seen = Callable[[str], object]
"""Told every piece of text (or every line) on its way, for counting."""


def wire(text: str) -> bytes:
    """Text as it travels to a worker."""
    return text.encode("utf-8", "surrogatepass")


class Part(Protocol):
    """A run of bytes of a blob, produced anew whenever a session is fed."""

    def check(self) -> None:
        """Raise ConfigError if the bytes can't be had any more."""

    def blocks(self) -> Iterator[bytes]: ...


@dataclass(frozen=True)
class MemoryPart:
    """Bytes that are held."""

    data: bytes

    def check(self) -> None: ...

    def blocks(self) -> Iterator[bytes]:
        view = memoryview(self.data)
        for start in range(0, len(view), READ_BYTES):
            yield bytes(view[start : start + READ_BYTES])


@dataclass(frozen=True)
class FilePart:
    """A file whose bytes travel as they are."""

    path: Path
    stamp: Stamp

    def check(self) -> None:
        check_unchanged(self.path, self.stamp)

    def blocks(self) -> Iterator[bytes]:
        return blocks_of(self.path, self.stamp)


@dataclass(frozen=True)
class TextPart(FilePart):
    """A file that is decoded; `in_json` makes it the inside of a JSON string."""

    encoding: str
    in_json: bool = False

    def blocks(self, seen: Seen | None = None) -> Iterator[bytes]:
        for piece in self.pieces():
            if seen is not None:
                seen(piece)
            yield wire(json.dumps(piece, ensure_ascii=False)[1:-1] if self.in_json else piece)

    def pieces(self) -> Iterator[str]:
        return decoded(blocks_of(self.path, self.stamp), self.encoding)


@dataclass(frozen=True)
class JsonLinesPart(TextPart):
    """A file of one JSON value per line, which travels as one JSON array; empty lines are none."""

    def blocks(self, seen: Seen | None = None) -> Iterator[bytes]:
        opening = "["
        for lines in _whole_lines(self.pieces()):
            values = [line for line in lines if line.strip()]
            if seen is not None:
                for line in values:
                    seen(line)
            if values:
                yield wire(opening + ",".join(values))
                opening = ","
        yield b"]" if opening == "," else b"[]"


def _whole_lines(pieces: Iterable[str]) -> Iterator[list[str]]:
    """The lines that end in each piece, then the last one; without the byte order mark."""
    rest = ""
    first = True
    for piece in pieces:
        rest += piece.removeprefix("\N{BYTE ORDER MARK}") if first else piece
        first = first and not piece
        *lines, rest = rest.split("\n")
        if len(rest) > LONGEST_LINE_CHARS:
            raise ValueError("a line is longer than 64 MiB")
        yield lines
    yield [rest]


def cut(blocks: Iterable[bytes], chunk_bytes: int) -> Iterator[bytes]:
    """The same bytes in chunks of one size; only the last may be smaller."""
    buffer = bytearray()
    for block in blocks:
        buffer += block
        while len(buffer) >= chunk_bytes:
            yield bytes(memoryview(buffer)[:chunk_bytes])
            del buffer[:chunk_bytes]
    if buffer:
        yield bytes(buffer)
