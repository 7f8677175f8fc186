"""A memory limit that turns a memory bomb into a MemoryError in its cell.

It limits address space while user code runs, and is raised for the worker's own work in between,
so that there is always room for a report. Contexts do not count. User code can raise a soft limit,
so there is also a hard limit, set before the first cell: it is higher by another allowance, for
reports and for later contexts.
"""

from __future__ import annotations

import _thread
import mmap
import sys

if sys.platform != "win32":  # There, only `inprocess` uses this, without a limit.
    import resource

__all__ = ["MemoryLimit", "address_space", "measure_base"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_LARGE_BYTES = 1 << 20
_GUESSED_FACTOR = 16
"""A small JSON value takes at most about this many times its encoded size."""
_HIGHEST_ADDRESS = 1 << 47

_base_bytes: int | None = None


def measure_base() -> None:
    """Measure, before a fork, the address space that all children start with."""
    global _base_bytes
    _base_bytes = address_space()


def address_space() -> int:
    """Return the address space in use, without /proc, which a sandbox may not have.

    It is the smallest limit under which one more page can be allocated.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, _HIGHEST_ADDRESS if hard == resource.RLIM_INFINITY else hard
    try:
        while high - low > mmap.PAGESIZE:
            middle = (low + high) // 2
            resource.setrlimit(resource.RLIMIT_AS, (middle, hard))
            try:
                mmap.mmap(-1, mmap.PAGESIZE).close()
                high = middle
            except OSError:
                low = middle
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return high


class MemoryLimit:
    """Use it as a context manager around user code; `allowance_bytes=None` limits nothing."""

    def __init__(self, allowance_bytes: int | None) -> None:
        self._allowance = allowance_bytes
        self._limit: int | None = None
        self._is_fixed = False
        self._before_load: int | None = None
        if allowance_bytes is not None:
            base = address_space() if _base_bytes is None else _base_bytes
            self._limit = base + allowance_bytes
            self._hard = resource.getrlimit(resource.RLIMIT_AS)[1]

    def before_load(self, size_bytes: int) -> None:
        """Prepare to bind a context of this encoded size."""
        # Measuring starves this process for a moment: skip it for small contexts and with threads.
        measures = self._limit is not None and size_bytes >= _LARGE_BYTES
        alone = not _thread._count()
        self._before_load = address_space() if measures and alone else None

    def after_load(self, size_bytes: int) -> None:
        """Stop counting the memory of the context against cells."""
        if self._limit is None:
            return
        if self._before_load is not None:
            self._limit += max(0, address_space() - self._before_load)
        else:
            self._limit += min(size_bytes, _LARGE_BYTES) * _GUESSED_FACTOR
            self._limit += max(0, size_bytes - _LARGE_BYTES)

    def __enter__(self) -> None:
        if self._limit is None:
            return
        if not self._is_fixed:
            self._is_fixed = True
            assert self._allowance is not None
            self._hard = self._at_most_hard(self._limit + self._allowance)
        resource.setrlimit(resource.RLIMIT_AS, (self._at_most_hard(self._limit), self._hard))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (self._hard, self._hard))

    def _at_most_hard(self, limit: int) -> int:
        return limit if self._hard == resource.RLIM_INFINITY else min(limit, self._hard)
