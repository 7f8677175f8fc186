"""Finds work on long texts in the thread of an event loop, without measuring time."""

import sys
from types import FrameType, TracebackType
from typing import Any

__all__ = ["LoopThread"]

LONG_CHARS = 512 << 10
"""The engine's own bound is half of this, for one text; what is tested has far more."""

OF_TEXTS = frozenset(
    {"count", "decode", "encode", "find", "replace", "split", "splitlines", "translate"}
)
"""Methods that read all of their text; those that only copy it are not here."""

PROPORTIONAL = frozenset(
    {"findall", "finditer", "loads", "match", "openssl_sha256", "scan_once", "search"}
    | {"sha256", "sub", "update"}
)
"""Functions in C that read all of what they are given, which is a variable of their caller."""

PROPORTIONAL_PYTHON = frozenset({"dumps", "loads"})
"""Functions of Python's json: what they call in C is not seen."""


class LoopThread:
    """`with LoopThread() as thread:` notes the long work of the calling thread in `thread.work`.

    Each entry names what was called, and the function that called it.
    """

    def __init__(self) -> None:
        self.work: list[tuple[str, str]] = []

    def __enter__(self) -> "LoopThread":
        sys.setprofile(self._look)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.setprofile(None)

    def of(self, called: str) -> list[str]:
        """Return the callers of a function, in order."""
        return [caller for name, caller in self.work if name == called]

    def _look(self, frame: FrameType, event: str, given: Any) -> None:
        name, caller, seen = frame.f_code.co_name, frame.f_back or frame, frame.f_locals
        is_meant = event == "call" and name in PROPORTIONAL_PYTHON
        if event == "c_call":
            name, caller, text = given.__name__, frame, getattr(given, "__self__", None)
            is_method = isinstance(text, str | bytes | bytearray)
            is_meant = name in (OF_TEXTS if is_method else PROPORTIONAL)
            seen = {"self": text} if is_method else seen
        if is_meant and _is_long(seen):
            self.work.append((name, caller.f_code.co_qualname))


def _is_long(values: dict[str, Any]) -> bool:
    return _chars(dict(values), depth=4) > LONG_CHARS


def _chars(value: Any, depth: int) -> int:
    """Return the size of the texts in plain values."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if depth and type(value) is dict:
        return sum(_chars(each, depth - 1) for each in list(value.values()))
    if depth and type(value) in (list, tuple):
        return sum(_chars(each, depth - 1) for each in value)
    return 0
