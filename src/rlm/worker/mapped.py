"""Genuine `str` and `bytes` objects whose data are the pages of a shared file.

The pages are mapped read-only; only headers, which hold reference counts and hashes, are private.
Nothing is ever unmapped, since nobody knows which objects are still in use.

    one text, or bytes                       many texts
    ┌────────────────────┐ private page      ┌──────────┬──────────┬───┐ private block
    │             header │                   │ header 0 │ header 1 │ … │
    ├────────────────────┤ shared pages      └────┬─────┴────┬─────┴───┘
    │ data             0 │                   ┌────▼─────┬────▼─────┬───┐ shared pages
    └────────────────────┘                   │ data   0 │ data   0 │ … │
                                             └──────────┴──────────┴───┘

The layout of a header, which precedes the data of a `str` or `bytes`, is learned from live objects.

Nothing is taken from CPython's header files: two new objects of different lengths show which
eight-byte words hold the length, which point to the data, and which are always the same.

    str, compact                   str, apart (as in subclasses)    bytes
    0 reference count              0 reference count                0 reference count
    1 type                         1 type                           1 type
    2 length                       2 length                         2 length
    3 hash, -1 if unknown          3 hash                           3 hash
    4 state: form, compact, …      4 state                          data, zero
    … caches, which may be empty   … caches
    data, zero                     n pointer to the data
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from array import array
from functools import lru_cache

from .forms import FORMS, LATIN_1, SHORT, WIDTHS

__all__ = [
    "Header",
    "apart_header",
    "bytes_header",
    "compact_header",
    "map_bytes",
    "map_text",
    "map_texts",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .forms import Table

_NO_ACCESS = 0
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_AT_THIS_ADDRESS = 0x10
_FAILED = ctypes.c_void_p(-1).value

_mmap = ctypes.CDLL(None, use_errno=True).mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)


def map_text(fd: int, form: int, chars: int) -> str:
    """Return the text that fills the file; it must have at least two characters."""
    value: str = _behind_header(fd, compact_header(form), chars, (chars + 1) * WIDTHS[form])
    return value


def map_bytes(fd: int, size: int) -> bytes:
    """Return the bytes that fill the file; there must be at least two."""
    value: bytes = _behind_header(fd, bytes_header(), size, size + 1)
    return value


def map_texts(fd: int, table: Table) -> list[str]:
    """Return the texts of a table, created in bulk since there may be millions."""
    base = _map(_whole_pages(_size_of(fd)), mmap.PROT_READ, mmap.MAP_SHARED, fd=fd)
    addresses = array("Q", [id(None)]) * len(table.forms)
    for form in range(len(FORMS)):
        positions, offsets, chars = table.of_form(form)
        if positions:
            made = _headers(apart_header(form), chars, _shifted(offsets, base))
            if len(positions) == len(addresses):
                addresses = made
            else:
                for position, address in zip(positions, made):  # noqa: B905 (not in 3.9)
                    addresses[position] = address
    values: list[Any] = (ctypes.py_object * len(addresses)).from_buffer(addresses)[:]
    for position in table.of_form(SHORT)[0]:
        values[position] = table.short_text(position)
    return values


def _behind_header(fd: int, header: Header, length: int, data_bytes: int) -> Any:
    """Create the object whose header ends where the shared pages begin."""
    if data_bytes > _size_of(fd):
        raise ValueError("the file of a shared context is too short")
    size = _whole_pages(data_bytes)
    page = mmap.PAGESIZE
    # Reserving both at once keeps the page before the data free.
    start = _map(page + size, _NO_ACCESS, _PRIVATE)
    _map(page, mmap.PROT_READ | mmap.PROT_WRITE, _PRIVATE | _AT_THIS_ADDRESS, at=start)
    data = start + page
    _map(size, mmap.PROT_READ, mmap.MAP_SHARED | _AT_THIS_ADDRESS, fd=fd, at=data)
    address = data - header.size_bytes
    ctypes.memmove(address, header.filled(length, data), header.size_bytes)
    return ctypes.cast(address, ctypes.py_object).value


def _headers(header: Header, lengths: array[int], data: array[int]) -> array[int]:
    """Write the headers of many objects into a block; return their addresses."""
    size = len(lengths) * header.size_bytes
    start = _map(_whole_pages(size), mmap.PROT_READ | mmap.PROT_WRITE, _PRIVATE)
    room = memoryview((ctypes.c_char * size).from_address(start))
    header.fill(room.cast("B").cast("Q"), lengths, data)
    addresses = array("Q", [start])
    while len(addresses) < len(lengths):
        addresses += _shifted(addresses, len(addresses) * header.size_bytes)
    return addresses[: len(lengths)]


def _shifted(numbers: array[int], by: int) -> array[int]:
    """Add `by` to every number, in a single addition of two large integers."""
    once = int.from_bytes((b"\1" + bytes(7)) * len(numbers), "little")
    total = int.from_bytes(numbers.tobytes(), "little") + by * once
    return array("Q", total.to_bytes(8 * len(numbers), "little"))


def _whole_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _map(size: int, protection: int, flags: int, *, fd: int = -1, at: int | None = None) -> int:
    address = _mmap(at, size, protection, flags, fd, 0)
    if address == _FAILED:
        raise MemoryError(f"{size:,} bytes can't be mapped: {os.strerror(ctypes.get_errno())}")
    result: int = address
    return result


def _size_of(fd: int) -> int:
    """Return the size of a file without fstat, which a sealed sandbox refuses."""
    return os.lseek(fd, 0, os.SEEK_END)


# -- headers of objects --

_WORD = 8
_REFERENCES, _TYPE, _LENGTH, _HASH, _STATE = range(5)
_UNKNOWN_HASH = _ALL_BITS = (1 << 64) - 1
_IMMORTAL = (1 << 32) - 1 if sys.version_info >= (3, 12) else 1 << 60
"""The reference count of immortal objects; before 3.12, a count that never reaches 0."""

_LENGTHS = (1009, 2003)
_CHARACTERS = ("x", "\xe9", "\u4e2d", "\U0001f600")
_CODECS = ("ascii", "latin-1", "utf-16-le", "utf-32-le")


class _Sample:
    """A live object, its length and the address of its data."""

    def __init__(self, value: str | bytes, data: int) -> None:
        self.value = value
        self.length = len(value)
        self.data = data


class Header:
    """The words of a header, without the length and the pointers to the data."""

    def __init__(self, words: array[int], lengths: list[int], pointers: list[int]) -> None:
        self.words = words
        self.lengths = lengths
        self.pointers = pointers
        self.size_bytes = len(words) * _WORD

    def filled(self, length: int, data: int) -> bytes:
        """Return the header of one object."""
        words = self.words[:]
        for index in self.lengths:
            words[index] = length
        for index in self.pointers:
            words[index] = data
        return words.tobytes()

    def fill(self, room: memoryview, lengths: array[int], data: array[int]) -> None:
        """Write the headers of many objects, column by column, into zeroed memory."""
        step = len(self.words)
        for index, word in enumerate(self.words):
            if index in self.lengths:
                room[index::step] = memoryview(lengths)
            elif index in self.pointers:
                room[index::step] = memoryview(data)
            elif word:
                room[index::step] = memoryview(array("Q", [word]) * len(lengths))


@lru_cache(maxsize=None)
def compact_header(form: int) -> Header:
    """Return the header of a `str` whose characters follow it."""
    texts = [_CHARACTERS[form] * length for length in _LENGTHS]
    width = WIDTHS[form]
    size = sys.getsizeof(texts[0]) - (_LENGTHS[0] + 1) * width
    samples = [_Sample(text, id(text) + size) for text in texts]
    _check_data(samples, form)
    return _learned(str, samples, size)


@lru_cache(maxsize=None)
def apart_header(form: int) -> Header:
    """Return the header of a `str` whose characters are elsewhere, as in subclasses."""

    class Apart(str):
        __slots__ = ()

    size = str.__basicsize__
    texts = [Apart(_CHARACTERS[form] * length) for length in _LENGTHS]
    samples = [_Sample(text, _words_at(id(text), size)[-1]) for text in texts]
    _check_data(samples, form)
    return _learned(str, samples, size)


@lru_cache(maxsize=None)
def bytes_header() -> Header:
    """Return the header of `bytes`."""
    size = bytes.__basicsize__ - 1  # It includes the final zero.
    values = [b"\xe9" * length for length in _LENGTHS]
    samples = [_Sample(value, id(value) + size) for value in values]
    _check_data(samples, LATIN_1)
    return _learned(bytes, samples, size)


def _words_at(address: int, size: int) -> array[int]:
    return array("Q", ctypes.string_at(address, size))


def _check_data(samples: list[_Sample], form: int) -> None:
    """Check that the data are where they are assumed to be."""
    width = WIDTHS[form]
    for sample in samples:
        expected = (_CHARACTERS[form] * sample.length).encode(_CODECS[form]) + bytes(width)
        if ctypes.string_at(sample.data, len(expected)) != expected:
            raise ValueError("this Python stores the data of its objects elsewhere")


def _learned(kind: type, samples: list[_Sample], size: int) -> Header:
    first, second = (_words_at(id(sample.value), size) for sample in samples)
    columns = [(first[at], second[at]) for at in range(len(first))]
    lengths = [at for at, words in enumerate(columns) if words == _LENGTHS]
    addresses = tuple(sample.data for sample in samples)
    pointers = [at for at, words in enumerate(columns) if words == addresses]
    known = {_REFERENCES: _IMMORTAL, _TYPE: id(kind), _HASH: _UNKNOWN_HASH}
    template = array("Q")
    for at, (one, other) in enumerate(columns):
        mask = 0xFF if at == _STATE else _ALL_BITS  # The rest of the state is padding.
        filled_in = at in lengths or at in pointers
        if not filled_in and at not in known and one & mask != other & mask:
            raise ValueError("this Python has a different header layout")
        template.append(0 if filled_in else known.get(at, one & mask))
    if _LENGTH not in lengths or size != len(columns) * _WORD:
        raise ValueError("this Python has a different header layout")
    return Header(template, lengths, pointers)
