"""A memory limit without system calls: what a cell may not have is taken before it starts.

WebAssembly gives the sandbox a fixed most. It has room for contexts, for a cell's allowance and for
reports. While a cell runs, memory beyond its allowance is held by ballast that is never touched, so
it costs nothing outside. Contexts take the place of ballast and do not count against cells.
"""

import io
from types import TracebackType

__all__ = ["RESERVE_BYTES", "MemoryLimit"]

RESERVE_BYTES = 1 << 30
"""What the sandbox gets besides a cell's allowance, for contexts."""

_LARGEST_BYTES, _SMALLEST_BYTES = 64 << 20, 1 << 20
_CONTEXT_FACTOR = 2


class _Nothing(io.RawIOBase):
    def readable(self) -> bool:
        return True


class MemoryLimit:
    """Use it as a context manager around user code; `allowance_bytes=None` limits nothing."""

    def __init__(self, allowance_bytes: int | None) -> None:
        self._left_bytes = 0 if allowance_bytes is None else RESERVE_BYTES
        self._raw = _Nothing()
        self._ballast: list[tuple[int, io.BufferedReader]] = []
        self._held_bytes = 0

    def make_room(self) -> None:
        """Let go of all ballast: a context is coming."""
        self._ballast.clear()
        self._held_bytes = 0

    def before_load(self, size_bytes: int) -> None:
        """A context of that encoded size is about to be bound."""
        self.make_room()

    def after_load(self, size_bytes: int) -> None:
        """What it takes is not counted against cells."""
        self._left_bytes = max(0, self._left_bytes - _CONTEXT_FACTOR * size_bytes)

    def __enter__(self) -> None:
        block = _LARGEST_BYTES
        while self._held_bytes < self._left_bytes and block >= _SMALLEST_BYTES:
            size = min(block, self._left_bytes - self._held_bytes)
            try:  # A buffer is allocated, not filled.
                self._ballast.append((size, io.BufferedReader(self._raw, size)))
                self._held_bytes += size
            except MemoryError:
                block //= 2

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go of some, so that there is room to report."""
        if kind is not None:
            self.make_room()
        elif self._ballast:
            self._held_bytes -= self._ballast.pop(0)[0]
