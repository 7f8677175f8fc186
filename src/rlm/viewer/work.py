"""Blocking work in threads: a few at a time, and not too many waiting."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rlm.errors import ConfigError

__all__ = ["Busy", "Work"]

AT_ONCE = 4
MOST_WAITING = 100
T = TypeVar("T")


class Busy(ConfigError):
    """Too much is being asked for at once."""


class Work:
    """Threads of one server."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rlm-viewer")
        self._waiting = 0

    async def run(self, task: Callable[..., T], *arguments: Any) -> T:
        """Call something in a thread; Busy if too many wait already."""
        if self._waiting >= MOST_WAITING:
            raise Busy("too much is asked of the viewer at once; try again in a moment")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, task, *arguments)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
