"""The head of a GGUF file: what model it holds, how long its window is, how many parameters.

Read here and not by the library, because it must be cheap, and because a damaged file should be
told in plain words before native code sees it. Everything in the file may be wrong.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

__all__ = ["Header", "read_header"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_ENTRIES = 1_000_000
MOST_DIMENSIONS = 8
STRING, ARRAY = 8, 9
FORMATS = dict(enumerate(("<B", "<b", "<H", "<h", "<I", "<i", "<f", "<?")))
FORMATS |= {10: "<Q", 11: "<q", 12: "<d"}
"""The scalar kinds of values, by their number in the file."""


class Header(Struct, frozen=True):
    """What the head of a file says. `window_tokens` is what the model was trained for."""

    architecture: str
    name: str
    window_tokens: int | None
    parameters: int
    has_chat_template: bool


def read_header(path: Path) -> Header:
    """Read a file's head; ValueError, with the reason, if it is no whole GGUF file."""
    if path.stat().st_size < len(MAGIC):
        raise ValueError("it is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _header(_Reader(data))
        except struct.error:
            raise ValueError("it ends in the middle of its head: is the download whole?") from None


class _Reader:
    """A place in the bytes, moving on as things are read."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.at = 0

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def count(self) -> int:
        """How many entries follow; each takes a byte at least, so a wrong one is noticed."""
        value = int(self.number("<Q"))
        if value > min(len(self.data) - self.at, MOST_ENTRIES * 16):
            raise ValueError("it names more entries than it has room for: it is damaged")
        return value

    def text(self) -> bytes:
        length = int(self.number("<Q"))
        if length > len(self.data) - self.at:
            raise ValueError("it ends in the middle of its head: is the download whole?")
        self.at += length
        return bytes(self.data[self.at - length : self.at])

    def skip_texts(self, count: int) -> None:
        size, at, data = len(self.data), self.at, self.data
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(count):
            at += 8 + unpack(data, at)[0]
            if at > size:
                raise ValueError("it ends in the middle of its head: is the download whole?")
        self.at = at

    def value(self, kind: int) -> Any:
        """A value of a kind; of an array only that it is there."""
        if kind == STRING:
            return self.text().decode("utf-8", "replace")
        if kind != ARRAY:
            return self.number(_format(kind))
        inner, count = int(self.number("<I")), self.count()
        if inner == STRING:
            self.skip_texts(count)
        elif inner == ARRAY:
            raise ValueError("it holds arrays of arrays, which no model needs")
        else:
            self.at += count * struct.calcsize(_format(inner))
            if self.at > len(self.data):
                raise ValueError("it ends in the middle of its head: is the download whole?")
        return None


def _format(kind: int) -> str:
    if kind not in FORMATS:
        raise ValueError(f"it holds a value of the unknown kind {kind}: it is damaged")
    return FORMATS[kind]


def _header(reader: _Reader) -> Header:
    if bytes(reader.data[:4]) != MAGIC:
        raise ValueError("it does not begin as a GGUF file does")
    reader.at = 4
    version = reader.number("<I")
    if version not in VERSIONS:
        raise ValueError(f"it is of GGUF version {version}; versions 2 and 3 can be read")
    tensors, entries = reader.count(), reader.count()
    facts = {}
    for _ in range(entries):
        key = reader.text().decode("utf-8", "replace")
        facts[key] = reader.value(int(reader.number("<I")))
    shapes = list(_shapes(reader, tensors))
    if shapes and reader.at + max(offset for _, offset in shapes) >= len(reader.data):
        raise ValueError("it is shorter than its own list of contents: is the download whole?")
    return _described(facts, sum(size for size, _ in shapes))


def _shapes(reader: _Reader, tensors: int) -> Iterator[tuple[int, int]]:
    """Of each tensor how many numbers it has, and where it begins behind the head."""
    for _ in range(tensors):
        reader.text()
        dimensions = int(reader.number("<I"))
        if dimensions > MOST_DIMENSIONS:
            raise ValueError(f"it holds a tensor of {dimensions} dimensions: it is damaged")
        size = 1
        for _ in range(dimensions):
            size *= int(reader.number("<Q"))
        reader.number("<I")
        yield size, int(reader.number("<Q"))


def _described(facts: dict[str, Any], parameters: int) -> Header:
    architecture = facts.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise ValueError("it does not say which architecture its model has")
    window = facts.get(f"{architecture}.context_length")
    is_number = isinstance(window, int) and not isinstance(window, bool) and window > 0
    return Header(
        architecture=architecture,
        name=str(facts.get("general.name") or ""),
        window_tokens=window if is_number else None,
        parameters=parameters,
        has_chat_template="tokenizer.chat_template" in facts,
    )
