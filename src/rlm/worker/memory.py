"""A memory limit that turns a memory bomb into a MemoryError in its cell.

The limit holds while user code runs and is lifted for the worker's own work in between, so
that there is always room to report what happened.
"""

from __future__ import annotations

import resource

__all__ = ["MemoryLimit"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType


class MemoryLimit:
    """Use it as a context manager around user code; `allowance_bytes=None` limits nothing."""

    def __init__(self, allowance_bytes: int | None) -> None:
        self._hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        self._limit = None if allowance_bytes is None else _address_space() + allowance_bytes
        self._before_load = 0

    def before_load(self) -> None:
        """Remember how much is in use; what a context takes is not counted against cells."""
        self._before_load = _address_space()

    def after_load(self) -> None:
        """Raise the limit by what was loaded."""
        if self._limit is not None:
            self._limit += max(0, _address_space() - self._before_load)

    def __enter__(self) -> None:
        if self._limit is not None:
            self._set(self._limit)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._limit is not None:
            self._set(self._hard)

    def _set(self, limit: int) -> None:
        if self._hard != resource.RLIM_INFINITY:
            limit = min(limit, self._hard) if limit != resource.RLIM_INFINITY else self._hard
        resource.setrlimit(resource.RLIMIT_AS, (limit, self._hard))


def _address_space() -> int:
    """Bytes of address space in use; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0
