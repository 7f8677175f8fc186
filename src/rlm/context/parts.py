"""The parts of a stored blob: bytes in memory, and files that are read again each time.

Text is encoded for transport (as UTF-8 that keeps lone surrogates, or as JSON) block by block, so a
context of any size needs only a few megabytes besides what the caller holds.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from json.encoder import encode_basestring as quoted
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from rlm.data.filesystem.opening import Stamp, blocks_of, check_unchanged, decoded

__all__ = [
    "Documents",
    "EncodedTexts",
    "FilePart",
    "FileTexts",
    "HeldText",
    "HeldTexts",
    "JsonLinesPart",
    "MemoryPart",
    "Part",
    "Seen",
    "Text",
    "TextPart",
    "cut",
    "wire",
]

LONGEST_LINE_CHARS = 64 << 20
BLOCK_CHARS = BLOCK_BYTES = 1 << 17
"""Characters encoded at a time, few enough to stay in the processor's cache."""

Documents = Iterator[tuple[str | None, Iterator[str]]]
"""Names (None in a list) and texts, each in pieces, to be read in order."""

Seen = Callable[[str], object]
"""Called with every piece of text (or every line) as it passes, for counting."""


def wire(text: str) -> bytes:
    """Return text as it is sent to a worker."""
    return text.encode("utf-8", "surrogatepass")


class Part(Protocol):
    """A range of bytes of a blob, produced again for every session."""

    def check(self) -> None:
        """Raise ConfigError if the bytes are no longer available."""

    def blocks(self) -> Iterator[bytes]: ...


class MemoryPart(Struct, frozen=True):
    """Bytes in memory."""

    data: bytes

    def check(self) -> None: ...

    def blocks(self) -> Iterator[bytes]:
        view = memoryview(self.data)
        for start in range(0, len(view), BLOCK_BYTES):
            yield bytes(view[start : start + BLOCK_BYTES])


class HeldText(Struct, frozen=True):
    """A text in memory; with `in_json`, it becomes the inside of a JSON string."""

    text: str
    in_json: bool = False

    def check(self) -> None: ...

    def blocks(self) -> Iterator[bytes]:
        return (wire(quoted(each)[1:-1] if self.in_json else each) for each in self.pieces())

    def pieces(self) -> Iterator[str]:
        return _pieces(self.text)


class HeldTexts(Struct, frozen=True):
    """Texts in memory, by names or as a list, sent as one JSON value."""

    texts: tuple[str, ...]
    names: tuple[str, ...] | None = None

    def check(self) -> None: ...

    def blocks(self) -> Iterator[bytes]:
        """Yield exactly what `json.dumps` would make of all of them at once."""
        waiting: list[str] = []
        chars = 0
        for piece in self._json():
            waiting.append(piece)
            chars += len(piece)
            if chars >= BLOCK_CHARS:
                yield wire("".join(waiting))
                waiting.clear()
                chars = 0
        yield wire("".join(waiting))

    def _json(self) -> Iterator[str]:
        before, end = ("[", "]") if self.names is None else ("{", "}")
        for index, text in enumerate(self.texts):
            yield before
            before = ", "
            if self.names is not None:
                yield f"{quoted(self.names[index])}: "
            if len(text) <= BLOCK_CHARS:
                yield quoted(text)
            else:
                yield '"'
                yield from (quoted(piece)[1:-1] for piece in _pieces(text))
                yield '"'
        yield end if self.texts else before + end

    def in_order(self) -> Documents:
        for index, text in enumerate(self.texts):
            yield self.names[index] if self.names is not None else None, _pieces(text)


class EncodedTexts(Struct, frozen=True):
    """The texts of a JSON list, or of a JSON object by name, decoded one at a time."""

    text: str

    def in_order(self) -> Documents:
        scan = json.JSONDecoder().raw_decode
        is_list, at, end = self.text[0] == "[", 1, len(self.text) - 1
        while at < end:
            name = None
            if not is_list:
                name, at = scan(self.text, at)
                at += len(": ")
            text, at = scan(self.text, at)
            yield name, _pieces(text)
            at += len(", ")


def _pieces(text: str) -> Iterator[str]:
    if len(text) <= BLOCK_CHARS:
        return iter((text,))
    return (text[at : at + BLOCK_CHARS] for at in range(0, len(text), BLOCK_CHARS))


class FilePart(Struct, frozen=True):
    """A file whose bytes are sent unchanged."""

    path: Path
    stamp: Stamp

    @property
    def is_verbatim(self) -> bool:
        """Whether the bytes that are sent are those of the file."""
        return type(self) is FilePart

    def check(self) -> None:
        check_unchanged(self.path, self.stamp)

    def blocks(self) -> Iterator[bytes]:
        return blocks_of(self.path, self.stamp)


class TextPart(FilePart, frozen=True):
    """A file that is decoded; with `in_json`, it becomes the inside of a JSON string."""

    encoding: str
    in_json: bool = False

    def blocks(self, seen: Seen | None = None) -> Iterator[bytes]:
        for piece in self.pieces():
            if seen is not None:
                seen(piece)
            yield wire(json.dumps(piece, ensure_ascii=False)[1:-1] if self.in_json else piece)

    def pieces(self) -> Iterator[str]:
        return decoded(blocks_of(self.path, self.stamp), self.encoding)


class Text(Part, Protocol):
    """A part that is a text."""

    def pieces(self) -> Iterator[str]: ...


class FileTexts(Struct, frozen=True):
    """The texts of files, by name; they are read one at a time."""

    texts: tuple[tuple[str, Text], ...]

    def in_order(self) -> Documents:
        return ((name, text.pieces()) for name, text in self.texts)


class JsonLinesPart(TextPart, frozen=True):
    """A file of one JSON value per line, sent as one JSON array; empty lines are skipped."""

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
    """Yield the lines that end in each piece, then the last one, without a byte order mark."""
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
    """Yield the same bytes in chunks of one size; only the last may be smaller."""
    buffer = bytearray()
    for block in blocks:
        if not buffer and len(block) == chunk_bytes:
            yield block
            continue
        buffer += block
        while len(buffer) >= chunk_bytes:
            yield bytes(memoryview(buffer)[:chunk_bytes])
            del buffer[:chunk_bytes]
    if buffer:
        yield bytes(buffer)
