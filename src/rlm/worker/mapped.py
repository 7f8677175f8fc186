"""Genuine `str` and `bytes` objects whose data are the pages of a shared file.

The pages are mapped read-only; only headers, which hold reference counts and hashes, are private.
Nothing is ever unmapped, since nobody can know who still holds such an object.

    one text, or bytes                       many texts
    ┌────────────────────┐ private page      ┌──────────┬──────────┬───┐ private block
    │             header │                   │ header 0 │ header 1 │ … │
    ├────────────────────┤ shared pages      └────┬─────┴────┬─────┴───┘
    │ data             0 │                   ┌────▼─────┬────▼─────┬───┐ shared pages
    └────────────────────┘                   │ data   0 │ data   0 │ … │
                                             └──────────┴──────────┴───┘
"""

from __future__ import annotations

import ctypes
import mmap
import os
from array import array

from .forms import FORMS, SHORT, WIDTHS
from .headers import apart_header, bytes_header, compact_header

__all__ = ["map_bytes", "map_text", "map_texts"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .forms import Table
    from .headers import Header

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
    """The text that fills the file from its beginning; it has at least two characters."""
    value: str = _behind_header(fd, compact_header(form), chars, (chars + 1) * WIDTHS[form])
    return value


def map_bytes(fd: int, size: int) -> bytes:
    """The bytes that fill the file from its beginning; there are at least two."""
    value: bytes = _behind_header(fd, bytes_header(), size, size + 1)
    return value


def map_texts(fd: int, table: Table) -> list[str]:
    """The texts of a table; made in bulk, since there may be millions."""
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
    """The object whose header ends where the shared pages begin."""
    if data_bytes > _size_of(fd):
        raise ValueError("the file of a shared context is too short")
    size = _whole_pages(data_bytes)
    page = mmap.PAGESIZE
    # Reserving both at once keeps everybody else out of the page before the data.
    start = _map(page + size, _NO_ACCESS, _PRIVATE)
    _map(page, mmap.PROT_READ | mmap.PROT_WRITE, _PRIVATE | _AT_THIS_ADDRESS, at=start)
    data = start + page
    _map(size, mmap.PROT_READ, mmap.MAP_SHARED | _AT_THIS_ADDRESS, fd=fd, at=data)
    address = data - header.size_bytes
    ctypes.memmove(address, header.filled(length, data), header.size_bytes)
    return ctypes.cast(address, ctypes.py_object).value


def _headers(header: Header, lengths: array[int], data: array[int]) -> array[int]:
    """Write the headers of many objects into a block of their own; their addresses."""
    size = len(lengths) * header.size_bytes
    start = _map(_whole_pages(size), mmap.PROT_READ | mmap.PROT_WRITE, _PRIVATE)
    room = memoryview((ctypes.c_char * size).from_address(start))
    header.fill(room.cast("B").cast("Q"), lengths, data)
    addresses = array("Q", [start])
    while len(addresses) < len(lengths):
        addresses += _shifted(addresses, len(addresses) * header.size_bytes)
    return addresses[: len(lengths)]


def _shifted(numbers: array[int], by: int) -> array[int]:
    """Add `by` to every number, as one addition of two integers that consist of all of them."""
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
    """Without fstat, which a sealed sandbox refuses: the C library makes it a call with a path."""
    return os.lseek(fd, 0, os.SEEK_END)
