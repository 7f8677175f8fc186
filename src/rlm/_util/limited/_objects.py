"""An object in a process with limits: opened once, called many times."""

import asyncio
import threading
import time
import weakref
from dataclasses import asdict
from typing import Any

from rlm._util.limited import _process
from rlm._util.limited._jobs import Jobs, ended, final_value, framed, received
from rlm._util.limited._limits import JobLimits, JobSlots, JobStopped
from rlm._util.limited._threads import calling_on_stop, check_wanted, in_thread
from rlm._util.limited._workers import Worker

__all__ = ["LimitedObject"]

IDLE_SECONDS = 60.0
"""How long a process waits for the next call; after that, the next call starts a new one."""

_START_SECONDS = 60.0
_NO_OWNER = ""


class LimitedObject:
    """An object that a function of a module makes in its own process; call its methods with `call`.

    Calls wait for each other. A call that exceeds a limit, raises or is cancelled ends the process;
    the next call makes the object again. The process ends with this object, or when it is idle.
    """

    def __init__(
        self, jobs: Jobs, function: str, *arguments: Any, limits: JobLimits | None = None
    ) -> None:
        self._worker: Worker | None = None
        self._timer: threading.Timer | None = None
        self._name = f"{jobs.module}.{function}"
        self._jobs = jobs
        self._limits = limits or jobs.limits
        header = {**asdict(self._limits), "function": function, "data": False, "serves": True}
        self._opening = framed(header) + framed(arguments)
        self._turns = JobSlots(1)
        self._lock = threading.Lock()
        self._is_busy = False

    def __del__(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._worker is not None:
            self._worker.close()

    def call(self, method: str, *arguments: Any, seconds: float | None = None) -> Any:
        """Return what the method returns; raise JobStopped if there is no result. Blocks."""
        check_wanted()
        turn = self._turns.enter(_NO_OWNER)
        try:
            with calling_on_stop(turn.cancel):
                turn.result()
        except BaseException:
            self._turns.abandon(_NO_OWNER, turn)
            raise
        value = self._called(method, arguments, seconds)
        check_wanted()
        return value

    async def acall(self, method: str, *arguments: Any, seconds: float | None = None) -> Any:
        """Do the same as `call`, without blocking the event loop; cancelling ends the process."""
        turn = self._turns.enter(_NO_OWNER)
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            self._turns.abandon(_NO_OWNER, turn)
            raise
        return await in_thread(self._called, method, arguments, seconds)

    def close(self) -> None:
        """End the process; a call in progress fails, and the next one starts a new process."""
        with self._lock:
            worker = self._worker
            if worker is not None and self._is_busy:
                worker.kill()  # The thread that waits for it sees its end.
                return
            self._worker = None
        if worker is not None:
            worker.finish()

    def _called(self, method: str, arguments: tuple[Any, ...], seconds: float | None) -> Any:
        """Make one call; the caller has the turn, which is passed on at the end."""
        limit = self._limits.seconds if seconds is None else seconds
        with self._lock:
            self._is_busy = True
            if self._timer is not None:
                self._timer.cancel()
        try:
            with calling_on_stop(self.close):
                worker = self._opened()
                frames = framed({"function": method, "seconds": limit}) + framed(arguments)
                return self._exchange(worker, frames, limit)
        finally:
            with self._lock:
                self._is_busy = False
                self._timer = threading.Timer(IDLE_SECONDS, _close_idle, [weakref.ref(self)])
                self._timer.daemon = True
                self._timer.start()
            self._turns.leave(_NO_OWNER)

    def _opened(self) -> Worker:
        """Return the process that holds the object; start one if necessary."""
        if self._worker is not None:
            return self._worker
        try:
            worker = self._jobs.take()
        except OSError as error:
            problem = f"{self._name}: the process could not be started: {error}"
            raise JobStopped("crash", problem) from error
        with self._lock:
            self._worker = worker
        self._jobs.refill()
        if received(worker, len(_process.READY), time.monotonic() + _START_SECONDS) is None:
            raise self._dead(worker, None)
        self._exchange(worker, self._opening, self._limits.seconds)
        return worker

    def _exchange(self, worker: Worker, frames: bytes, seconds: float) -> Any:
        """Return the answer to one call; end the process if there is none."""
        deadline = time.monotonic() + seconds
        try:
            found = self._answer(worker, frames, deadline)
        except TimeoutError:
            found = JobStopped("time", f"{self._name}: it took more than {seconds:g} s")
        except OSError as error:
            found = JobStopped("crash", f"{self._name}: {error}")
        except BaseException:
            self._dead(worker, None)
            raise
        if isinstance(found, JobStopped):
            self._dead(worker, None)
            raise found
        if found is _ENDED:
            raise self._dead(worker, seconds)
        worker.rest()
        return found

    def _answer(self, worker: Worker, frames: bytes, deadline: float) -> Any:
        try:
            worker.send(frames, deadline)
        except ConnectionError:
            return _ENDED
        head = received(worker, _process.HEAD.size, deadline)
        if head is None:
            return _ENDED
        kind, size = _process.HEAD.unpack(head)
        most = self._limits.output_bytes
        if kind == _process.OUTPUT or size > most:
            return JobStopped("output", f"{self._name}: more than {most:,} bytes")
        data = received(worker, size, deadline)
        return _ENDED if data is None else final_value(self._name, kind, data, self._limits)

    def _dead(self, worker: Worker, seconds: float | None) -> JobStopped:
        """End the process, and return why it failed."""
        with self._lock:
            self._worker = None
        return ended(self._name, worker.finish(), seconds or self._limits.seconds)


_ENDED = object()
"""Takes the place of an answer if the process ended first."""


def _close_idle(reference: "weakref.ref[LimitedObject]") -> None:
    kept = reference()
    if kept is not None and not kept._is_busy:
        kept.close()
