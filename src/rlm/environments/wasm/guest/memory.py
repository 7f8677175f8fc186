"""A memory limit without system calls: memory that a cell may not use is allocated before it runs.

WebAssembly gives the sandbox a fixed maximum, with room for contexts, a cell's allowance and
reports. While a cell runs, ballast holds the memory beyond its allowance; it is never touched, so
it costs nothing. Contexts replace ballast and do not count against cells.
"""

import io
from types import TracebackType

__all__ = ["RESERVE_BYTES", "MemoryLimit"]

RESERVE_BYTES = 1 << 30
"""Memory for contexts, besides a cell's allowance."""

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
        """Free all ballast, before a context arrives."""
        self._ballast.clear()
        self._held_bytes = 0

    def before_load(self, size_bytes: int) -> None:
        """Prepare to bind a context of this encoded size."""
        self.make_room()

    def after_load(self, size_bytes: int) -> None:
        """Stop counting the memory of a context against cells."""
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
        """Free some ballast, to make room for the report."""
        if kind is not None:
            self.make_room()
        elif self._ballast:
            self._held_bytes -= self._ballast.pop(0)[0]
