"""How many requests fly at once, and how long to wait before trying again.

A place is held by a request while it is on the wire, never by a run or by a waiting retry, so
runs that wait for their children can't starve them.
"""

import asyncio
import random

from rlm.errors import ModelError

__all__ = ["Scheduler"]

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 20.0


class Scheduler:
    """A bound on concurrent requests, for one event loop."""

    def __init__(self, max_concurrent_calls: int) -> None:
        self._places = asyncio.Semaphore(max_concurrent_calls)

    def place(self) -> asyncio.Semaphore:
        """`async with scheduler.place():` around exactly one request on the wire."""
        return self._places

    def wait_before_retry(self, attempt: int, error: ModelError) -> float:
        """What the server asked for, else exponential with full jitter."""
        if error.retry_after_seconds is not None:
            return error.retry_after_seconds
        return random.uniform(0, min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**attempt))
