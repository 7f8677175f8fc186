"""Decode text and JSON from a sandbox, after a fast check of its size.

A few megabytes of the right bytes decode to a gigabyte of objects, or take a minute, during which
nothing else runs. So the parts of each kind are counted before anything is built.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from rlm._util.slow_numbers import exponents_in, loads
from rlm.worker.bounds import (
    MAX_DEPTH,
    MAX_ESCAPES,
    MAX_EXPONENTS,
    MAX_NUMBER_CHARS,
    MAX_SURROGATES,
    TooLarge,
)

__all__ = ["JsonBounds", "TooLarge", "check_json", "read_json", "read_text", "read_texts"]

_HARMLESS_BYTES = 512
"""A document up to this size is decoded without a check."""

_BRACKETS = b"[]{}"
_ALL = bytes(range(256))
_NO_BRACKETS = bytes(set(_ALL) - set(_BRACKETS))
_BETWEEN_NUMBERS = bytes.maketrans(b"[]{}: \t\r\n", b",,,,,,,,,")
_SURROGATE_PAIRS = bytes(  # Of the bytes of a surrogate, the first becomes 1 and the second 2.
    1 if byte == 0xED else 2 if 0xA0 <= byte <= 0xBF else 0 for byte in _ALL
)


class JsonBounds(Struct, frozen=True):
    """Limits on a JSON document. One in four of its values may be a list or an object.

    `exponents`: how many numbers such as 1e300 it may hold, which take 40 times as long as others.
    """

    size_bytes: int
    values: int
    depth: int = MAX_DEPTH
    exponents: int = MAX_EXPONENTS


def read_text(data: bytes) -> str:
    """Return the text of bytes that `rlm.worker.wire` encoded; raise ValueError or TooLarge."""
    return read_texts((data,))[0]


def read_texts(parts: Sequence[bytes]) -> list[str]:
    """Return the texts of several parts that arrived together."""
    try:
        return [str(part, "utf-8") for part in parts]
    except UnicodeDecodeError:
        pass  # There may be lone surrogates, as in Python strings.
    count = sum(part.translate(_SURROGATE_PAIRS).count(b"\1\2") for part in parts)
    if count > MAX_SURROGATES:
        raise TooLarge(
            f"it contains {count:,} lone surrogates; at most {MAX_SURROGATES:,} are allowed"
        )
    return [str(part, "utf-8", "surrogatepass") for part in parts]


def read_json(data: bytes | str, bounds: JsonBounds) -> Any:
    """Return a JSON value; raise ValueError if it is invalid, or TooLarge."""
    check_json(data, bounds)
    try:
        return loads(data if isinstance(data, str) else read_text(data))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def check_json(data: bytes | str, bounds: JsonBounds) -> None:
    """Raise TooLarge if a document is too large to decode. Do not check whether it is JSON."""
    if len(data) <= _HARMLESS_BYTES and len(data) <= bounds.size_bytes:
        return
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    _allow("bytes", len(data), bounds.size_bytes)
    if b"\\" in data:
        _allow("backslashes", data.count(b"\\"), MAX_ESCAPES)
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # From here on, every quotation mark begins or ends a string.
    _allow("strings", data.count(b'"') // 2, 2 * bounds.values)
    outside = b"".join(data.split(b'"')[::2])
    brackets = outside.translate(None, _NO_BRACKETS)
    containers = brackets.count(b"[") + brackets.count(b"{")
    _allow("lists and objects", containers, max(bounds.values // 4, bounds.depth))
    _allow("values", outside.count(b",") + containers + 1, bounds.values)
    _allow("numbers with an exponent", exponents_in(outside), bounds.exponents)
    _check_depth(brackets, bounds.depth)
    numbers = outside.translate(_BETWEEN_NUMBERS).split(b",")
    _allow("characters of a number", max(map(len, numbers)), MAX_NUMBER_CHARS)


def _check_depth(brackets: bytes, depth: int) -> None:
    """Check the depth by removing the innermost pairs repeatedly, one level at a time."""
    for _ in range(depth):
        left = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(left) == len(brackets):
            break
        brackets = left
    if brackets:
        raise TooLarge(f"it is nested more than {depth} levels deep, or its brackets do not match")


def _allow(what: str, count: int, most: int) -> None:
    if count > most:
        raise TooLarge(f"it contains {count:,} {what}; at most {most:,} are allowed")
