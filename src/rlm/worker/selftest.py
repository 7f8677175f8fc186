"""Tests, once at the start, whether this Python can use objects in shared pages.

Only versions whose layout was verified are tried at all, because a wrong guess means a crash.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import re
import sys

from .forms import ALIGNMENT, FORMS, SHORT, WIDTHS, Table

__all__ = ["passes"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    _Made = TypeVar("_Made")

_FIRST_VERSION, _LAST_VERSION = (3, 9), (3, 13)
_SAMPLES = (
    "plain, text\n" * 9,
    "caf\xe9, text\n" * 9,
    "\u4e2d, \ud800\n" * 9,
    "\U0001f600, a\n" * 9,
)
_BYTES = bytes(range(256))
_CODECS = ("ascii", "latin-1", "utf-16-le", "utf-32-le")


def passes() -> bool:
    """Create objects of every kind in shared pages and use them; False at the slightest doubt."""
    if not _is_known():
        return False
    try:
        from . import mapped
    except (ImportError, AttributeError, OSError):  # There is no ctypes, no mmap, or no C library.
        return False
    try:
        texts = [_text(mapped.map_text, form) for form in range(len(FORMS))]
        many = _texts(mapped.map_texts)
        data = _over_file(_BYTES + b"\0", lambda fd: mapped.map_bytes(fd, len(_BYTES)))
    except (OSError, ValueError, MemoryError):
        return False
    gc.collect()
    return (
        all(map(_is_like, texts, _SAMPLES))
        and all(map(_is_like, many[::2], _SAMPLES))
        and many[1::2] == ["x"] * len(_SAMPLES)
        and "x".join(texts) + "x" == "".join(many)
        and _bytes_work(data)
    )


def _is_known() -> bool:
    """Return whether this is a plain CPython of a verified version, 64-bit, little-endian."""
    return (
        sys.implementation.name == "cpython"
        and _FIRST_VERSION <= sys.version_info[:2] <= _LAST_VERSION
        and sys.byteorder == "little"
        and sys.maxsize == (1 << 63) - 1
        and object.__basicsize__ == 16  # Larger in builds with other counts, or with locks.
        and not hasattr(sys, "gettotalrefcount")
        and not set("dt") & set(sys.abiflags)  # Debug, free-threaded.
        and hasattr(os, "memfd_create")
    )


def _text(make: Callable[[int, int, int], str], form: int) -> str:
    return _over_file(_encoded(form), lambda fd: make(fd, form, len(_SAMPLES[form])))


def _texts(make: Callable[[int, Table], list[str]]) -> list[str]:
    table, data = Table(), b""
    for form in range(len(FORMS)):
        table.add(len(data), len(_SAMPLES[form]), form)
        table.add(ord("x"), 1, SHORT)
        data += _encoded(form)
        data += bytes(-len(data) % ALIGNMENT)
    return _over_file(data, lambda fd: make(fd, table))


def _bytes_work(made: bytes) -> bool:
    return (
        type(made) is bytes
        and made == _BYTES
        and hash(made) == hash(_BYTES)
        and {_BYTES: 1}[made] == 1
        and made[3:9] + made[9:] == _BYTES[3:]
        and made.find(b"\xfe\xff") == 254
        and made.decode("latin-1").encode("latin-1") == _BYTES
        and pickle.loads(pickle.dumps(made)) == _BYTES  # noqa: S301 (our own)
    )


def _is_like(made: str, text: str) -> bool:
    """Return whether a text behaves like an ordinary one."""
    key = sys.intern(made)
    return (
        type(made) is str
        and made == text
        and text == key
        and hash(made) == hash(text)
        and {text: 1}[made] == {made: 1}[text] == 1
        and made[2:-3] == text[2:-3]
        and made[3] == text[3]
        and made.find(", ", 5) == text.find(", ", 5)
        and ", " in made
        and re.findall(r"(\w*), (.)", made) == re.findall(r"(\w*), (.)", text)
        and json.loads(json.dumps(made)) == text
        and made.encode("utf-8", "surrogatepass") == text.encode("utf-8", "surrogatepass")
        and made + "\u20ac" == f"{text}\u20ac"
        and made.splitlines() == text.splitlines()
        and pickle.loads(pickle.dumps(made)) == text  # noqa: S301 (our own)
    )


def _encoded(form: int) -> bytes:
    return _SAMPLES[form].encode(_CODECS[form], "surrogatepass") + bytes(WIDTHS[form])


def _over_file(data: bytes, make: Callable[[int], _Made]) -> _Made:
    fd = os.memfd_create("selftest", os.MFD_CLOEXEC)
    try:
        os.write(fd, data)
        return make(fd)
    finally:
        os.close(fd)
