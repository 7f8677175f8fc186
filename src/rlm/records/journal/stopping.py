"""Stop requests: a file beside a journal asks the process that executes the run to end it.

No signal is sent: a program may execute many runs, and only one of them is to end.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from rlm.errors import ConfigError
from rlm.records.journal import database
from rlm.records.journal.places import RunFile
from rlm.records.journal.records import private

__all__ = ["request_stop", "stop_requests"]

LOOK_SECONDS = 0.5
SUFFIX = ".stop"


def request_stop(run: RunFile) -> None:
    """Ask a run in progress to end with the best answer it has; it checks twice a second."""
    if not database.Lock(run.path.with_suffix(".lock")).is_taken():
        raise ConfigError("this run is not in progress, so there is nothing to stop")
    path = run.path.with_suffix(SUFFIX)
    try:
        os.close(private(path, os.O_WRONLY | os.O_CREAT))
    except OSError as error:
        raise ConfigError(f"the run can't be stopped: {error.strerror or error}") from error


@asynccontextmanager
async def stop_requests(journal: Path, stop: Callable[[], None]) -> AsyncGenerator[None, None]:
    """Call `stop` if it is requested before the block ends; earlier requests are ignored."""
    path = journal.with_suffix(SUFFIX)
    _take(path)
    watch = asyncio.create_task(_watch(path, stop))
    try:
        yield
    finally:
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        _take(path)


async def _watch(path: Path, stop: Callable[[], None]) -> None:
    while True:
        if _take(path):
            stop()
            return
        await asyncio.sleep(LOOK_SECONDS)


def _take(path: Path) -> bool:
    """Remove a request, and return whether there was one."""
    try:
        path.unlink()
    except OSError:
        return False
    return True
