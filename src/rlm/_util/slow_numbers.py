"""Read JSON from outside in a time that its numbers can't stretch.

msgspec reads most numbers in 40 ns, but needs up to 170 µs for some with an exponent, such as
`1e300`, and holds the interpreter's lock all the while: a megabyte of them takes ten seconds, in
which no thread runs. Python's json needs at most 4 µs for each. So documents with more than a few
such numbers are read by Python's json, which lets other threads run after each of them.
"""

import json
import math
import re
from collections.abc import Iterator
from mmap import mmap
from typing import Any, NamedTuple, NoReturn, TypeVar

import msgspec

from rlm.worker.bounds import TooLarge

__all__ = [
    "FEW",
    "MOST",
    "ON_LOOP",
    "SlowNumbers",
    "decode",
    "decode_with",
    "exponents_in",
    "has_many",
    "loads",
    "outside_strings",
    "slow_in",
]

Data = bytes | bytearray | memoryview | mmap | str
T = TypeVar("T")


class SlowNumbers(NamedTuple):
    """What makes numbers slow: how many have an exponent, and how many digits long ones have."""

    exponents: int
    long_digits: int

    def exceed(self, other: "SlowNumbers") -> bool:
        return self.exponents > other.exponents or self.long_digits > other.long_digits


FEW = SlowNumbers(16, 16 << 10)
"""msgspec reads these in 3 ms."""
_TOO_SHORT_BYTES = min(3 * FEW.exponents, FEW.long_digits)
"""A document this short has no room for more: `1e5` takes three bytes."""
ON_LOOP = SlowNumbers(1_000, 64 << 10)
"""Python's json reads these in 4 ms; more of them belong into a thread."""
MOST = SlowNumbers(500_000, 8 << 20)
"""Python's json reads these in 2 s; more of them are refused."""

_SLICE_BYTES = 1 << 20
_RUN = 64
_RUN_OF_DIGITS = b"0" * _RUN
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_DIGIT_OR_E = bytes(
    ord("0") if chr(byte) in "0123456789." else ord("e") if chr(byte) in "eE" else ord(" ")
    for byte in range(256)
)


def decode(data: bytes | bytearray | memoryview | str, kind: type[T]) -> T:
    """Decode JSON as `msgspec.json.decode(data, type=kind)` does; raise ValueError likewise."""
    if not has_many(data):
        return msgspec.json.decode(data, type=kind)
    return _convert(data, kind)


def decode_with(decoder: msgspec.json.Decoder[T], data: bytes | bytearray | memoryview | str) -> T:
    """Decode JSON as `decoder.decode(data)` does; raise ValueError likewise."""
    if len(data) <= _TOO_SHORT_BYTES or not has_many(data):
        return decoder.decode(data)
    return _convert(data, decoder.type)


def loads(data: Data, *, standard: bool = False) -> Any:
    """Decode JSON as `json.loads` does; `standard` refuses NaN and numbers beyond all floats.

    Raise TooLarge for numbers that would take longer than seconds.
    """
    slow = slow_in(data) if has_many(data) else FEW
    if slow.exceed(MOST):
        raise TooLarge(
            f"it holds {slow.exponents:,} numbers with an exponent and {slow.long_digits:,} digits "
            f"of long numbers; {MOST.exponents:,} and {MOST.long_digits:,} are allowed"
        )
    text = data if isinstance(data, str) else str(data, "utf-8-sig")
    if standard:
        return json.loads(text, parse_float=_finite, parse_int=_whole, parse_constant=_refuse)
    if slow.exceed(FEW):
        return json.loads(text, parse_float=_number, parse_int=_whole)
    return json.loads(text)


def has_many(data: Data, more_than: SlowNumbers = FEW) -> bool:
    """Whether more slow numbers than these are outside of strings."""
    if len(data) <= min(3 * more_than.exponents, more_than.long_digits):
        return False  # There is no room for more: `1e5` takes three bytes.
    return _may_have_many(data, more_than) and slow_in(data).exceed(more_than)


def slow_in(data: Data) -> SlowNumbers:
    """Count the slow numbers outside of strings."""
    exponents = digits = 0
    for part in outside_strings(data):
        exponents += exponents_in(part)
        digits += _RUN * part.translate(_DIGIT_OR_E).count(_RUN_OF_DIGITS)
    return SlowNumbers(exponents, digits)


def exponents_in(outside: bytes) -> int:
    """Count the exponents in a document without its strings."""
    words = outside.count(b"true") + outside.count(b"false")
    return outside.count(b"e") + outside.count(b"E") - words


def _may_have_many(data: Data, more_than: SlowNumbers = FEW) -> bool:
    """Whether there may be more slow numbers: what looks like them in strings counts too."""
    exponents = digits = 0
    for at in range(0, len(data), _SLICE_BYTES):  # Other threads run in between.
        letters = _bytes_of(data[at : at + _SLICE_BYTES + 1]).translate(_DIGIT_OR_E)
        exponents += letters.count(b"0e")
        if len(letters) >= _RUN:
            digits += _RUN * letters.count(_RUN_OF_DIGITS)
    return exponents > more_than.exponents or digits > more_than.long_digits


def outside_strings(data: Data) -> Iterator[bytes]:
    """Yield what is not in a string, for each slice: other threads run in between."""
    at, inside = 0, False
    while at < len(data):
        part = _bytes_of(data[at : at + _SLICE_BYTES])
        at += _SLICE_BYTES
        if (len(part) - len(part.rstrip(b"\\"))) % 2:  # An escape is never split.
            part += _bytes_of(data[at : at + 1])
            at += 1
        pieces = part.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(pieces[inside::2])
        inside ^= len(pieces) % 2 == 0


def _bytes_of(part: Data) -> bytes:
    if isinstance(part, bytes):
        return part
    return part.encode("utf-8", "replace") if isinstance(part, str) else bytes(part)


def _convert(data: Data, kind: type[T]) -> T:
    """Decode as msgspec would, with Python's json."""
    text = data if isinstance(data, str) else str(data, "utf-8")
    try:
        plain = loads(text, standard=True)
        if _SURROGATE.search(text):
            json.dumps(plain, ensure_ascii=False).encode()  # Lone ones raise UnicodeEncodeError.
    except TooLarge:
        raise
    except ValueError as error:
        raise msgspec.DecodeError(f"JSON is malformed: {error}") from None
    return msgspec.convert(plain, kind, str_keys=True)


# Other threads run when Python calls a function of Python, so these must not be functions of C.


def _number(text: str) -> float:
    return float(text)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("Number out of range")
    return value


def _whole(text: str) -> int:
    return int(text)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
