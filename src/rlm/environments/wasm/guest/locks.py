"""Locks and conditions for code that is alone: where it would wait for ever, it gets an error.

The runtime has no threads, and waiting for one of its locks that is held ends the whole sandbox.
"""

import threading
import time
from types import TracebackType
from typing import Any

__all__ = ["put_in_place"]


class Lock:
    """A lock that knows that nobody else can release it."""

    def __init__(self) -> None:
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it; wait in vain if there is a time limit, else say that it would be for ever."""
        if not self._is_held:
            self._is_held = True
            return True
        if blocking and timeout < 0:
            raise RuntimeError("this lock is held, and without threads nobody can release it")
        if blocking:
            time.sleep(timeout)
        return False

    def release(self) -> None:
        """Give it back."""
        if not self._is_held:
            raise RuntimeError("release unlocked lock")
        self._is_held = False

    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def _wait(condition: Any, timeout: float | None = None) -> bool:
    """`Condition.wait`, where nobody can notify."""
    if timeout is None:
        raise RuntimeError("without threads nobody can end this wait; WebAssembly has none")
    time.sleep(max(0.0, timeout))
    return False


def put_in_place() -> None:
    """Give them to cells under their usual names."""
    vars(threading).update(Lock=Lock)
    condition: Any = threading.Condition
    condition.wait = _wait
