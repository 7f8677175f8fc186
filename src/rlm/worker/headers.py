"""What stands before the data of a `str` or `bytes` in memory, learned from live objects.

Nothing is taken from the headers of CPython: two fresh objects of different lengths show which
words of eight bytes hold the length, which point to the data, and which are always the same.

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
import sys
from array import array
from functools import lru_cache

from .forms import LATIN_1, WIDTHS

__all__ = ["Header", "apart_header", "bytes_header", "compact_header"]

_WORD = 8
_REFERENCES, _TYPE, _LENGTH, _HASH, _STATE = range(5)
_UNKNOWN_HASH = _ALL_BITS = (1 << 64) - 1
_IMMORTAL = (1 << 32) - 1 if sys.version_info >= (3, 12) else 1 << 60
"""What CPython writes into objects that never die; before 3.12, a count nobody can bring to 0."""

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
    """The words of a header; the length and the pointers to the data are still to be filled in."""

    def __init__(self, words: array[int], lengths: list[int], pointers: list[int]) -> None:
        self.words = words
        self.lengths = lengths
        self.pointers = pointers
        self.size_bytes = len(words) * _WORD

    def filled(self, length: int, data: int) -> bytes:
        """The header of one object."""
        words = self.words[:]
        for index in self.lengths:
            words[index] = length
        for index in self.pointers:
            words[index] = data
        return words.tobytes()

    def fill(self, room: memoryview, lengths: array[int], data: array[int]) -> None:
        """Write the headers of many objects, column by column, into words that are all zero."""
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
    """The header of a `str` whose characters follow it at once."""
    texts = [_CHARACTERS[form] * length for length in _LENGTHS]
    width = WIDTHS[form]
    size = sys.getsizeof(texts[0]) - (_LENGTHS[0] + 1) * width
    samples = [_Sample(text, id(text) + size) for text in texts]
    _check_data(samples, form)
    return _learned(str, samples, size)


@lru_cache(maxsize=None)
def apart_header(form: int) -> Header:
    """The header of a `str` whose characters lie elsewhere, as those of subclasses always do."""

    class Apart(str):
        __slots__ = ()

    size = str.__basicsize__
    texts = [Apart(_CHARACTERS[form] * length) for length in _LENGTHS]
    samples = [_Sample(text, _words_at(id(text), size)[-1]) for text in texts]
    _check_data(samples, form)
    return _learned(str, samples, size)


@lru_cache(maxsize=None)
def bytes_header() -> Header:
    """The header of `bytes`."""
    size = bytes.__basicsize__ - 1  # the zero at the end is counted there
    values = [b"\xe9" * length for length in _LENGTHS]
    samples = [_Sample(value, id(value) + size) for value in values]
    _check_data(samples, LATIN_1)
    return _learned(bytes, samples, size)


def _words_at(address: int, size: int) -> array[int]:
    return array("Q", ctypes.string_at(address, size))


def _check_data(samples: list[_Sample], form: int) -> None:
    """Make sure that there really are data at the address taken for theirs."""
    width = WIDTHS[form]
    for sample in samples:
        expected = (_CHARACTERS[form] * sample.length).encode(_CODECS[form]) + bytes(width)
        if ctypes.string_at(sample.data, len(expected)) != expected:
            raise ValueError("this Python keeps the data of its objects elsewhere")


def _learned(kind: type, samples: list[_Sample], size: int) -> Header:
    first, second = (_words_at(id(sample.value), size) for sample in samples)
    columns = [(first[at], second[at]) for at in range(len(first))]
    lengths = [at for at, words in enumerate(columns) if words == _LENGTHS]
    addresses = tuple(sample.data for sample in samples)
    pointers = [at for at, words in enumerate(columns) if words == addresses]
    known = {_REFERENCES: _IMMORTAL, _TYPE: id(kind), _HASH: _UNKNOWN_HASH}
    template = array("Q")
    for at, (one, other) in enumerate(columns):
        mask = 0xFF if at == _STATE else _ALL_BITS  # the rest of the state is padding, never set
        filled_in = at in lengths or at in pointers
        if not filled_in and at not in known and one & mask != other & mask:
            raise ValueError("this Python has headers of another layout")
        template.append(0 if filled_in else known.get(at, one & mask))
    if _LENGTH not in lengths or size != len(columns) * _WORD:
        raise ValueError("this Python has headers of another layout")
    return Header(template, lengths, pointers)
