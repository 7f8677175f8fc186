"""Call functions in processes with limits, from threads and from coroutines."""

import asyncio
import atexit
import json
import os
import sys
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from rlm._util.limited import _process
from rlm._util.limited._limits import JobLimits, JobSlots, JobStopped
from rlm._util.limited._threads import calling_on_stop, check_wanted, in_thread
from rlm._util.limited._workers import ForkServer, Worker, spawned

__all__ = ["Collected", "Jobs", "ended", "final_value", "framed", "owner", "received"]

owner: ContextVar[str] = ContextVar("owner", default="")
"""The owner of a job, who gets at most half of the slots. Empty: the program itself."""

FORKS: bool = sys.platform == "linux"
_SIGXCPU = -24
_START_SECONDS = 60.0
_HEAD = _process.HEAD


class Collected(NamedTuple):
    """The values that a generator yielded until it ended or was stopped (`stopped` says why)."""

    items: list[Any]
    stopped: JobStopped | None


class Jobs:
    """The functions of one module; each call runs in its own process.

    The module is loaded once, in a fork server that starts with the first job and calls its
    `preload()`, if there is one. At most `at_once` jobs run at a time, and `ready` processes wait
    for the next ones.
    """

    def __init__(
        self, module: str, limits: JobLimits | None = None, *, at_once: int = 4, ready: int = 1
    ) -> None:
        self.module = module
        self.limits = limits or JobLimits()
        self._at_once = at_once
        self._ready_count = ready
        self._lock = threading.Lock()
        self._slots = JobSlots(at_once)
        self._server: ForkServer | None = None
        self._ready: deque[Worker] = deque()
        self._closings = 0
        _all.add(self)

    def call(
        self,
        function: str,
        *arguments: Any,
        data: bytes | memoryview | None = None,
        limits: JobLimits | None = None,
    ) -> Any:
        """Return what the function returns; raise JobStopped if there is no result. Blocks.

        `data`, if any, is its first argument, sent unchanged.
        """
        check_wanted()
        wanted, slots = owner.get(), self._slots
        slot = slots.enter(wanted)
        try:
            with calling_on_stop(slot.cancel):
                slot.result()
        except BaseException:
            slots.abandon(wanted, slot)
            raise
        job = _Job(self, function, arguments, limits, data)
        try:
            with calling_on_stop(job.stop):
                found = job.run()
        finally:
            slots.leave(wanted)
        check_wanted()
        return _value(found)

    async def acall(self, function: str, *arguments: Any, limits: JobLimits | None = None) -> Any:
        """Do the same as `call`, without blocking the event loop."""
        return _value(await self._arun(function, arguments, limits))

    async def acollect(
        self, function: str, *arguments: Any, limits: JobLimits | None = None
    ) -> Collected:
        """Return what a generator yields; if it is stopped, what it yielded until then."""
        found = await self._arun(function, arguments, limits)
        return Collected(found.items, found.stopped)

    def prepare(self) -> None:
        """Start a process before the first job; return at once."""
        fill = partial(self.refill, start_unless_closed_since=self._closings)
        threading.Thread(target=fill, name="rlm-limited", daemon=True).start()

    def close(self) -> None:
        """End the fork server and all its processes; the next job starts a new one."""
        with self._lock:
            self._closings += 1
            server, self._server = self._server, None
            ready, self._ready = self._ready, deque()
        for worker in ready:
            worker.close()
        if server is not None:
            server.close()

    async def _arun(
        self, function: str, arguments: tuple[Any, ...], limits: JobLimits | None
    ) -> "_Result":
        wanted, slots = owner.get(), self._slots
        slot = slots.enter(wanted)
        try:
            await asyncio.wrap_future(slot)
        except asyncio.CancelledError:
            slots.abandon(wanted, slot)
            raise

        def work() -> _Result:
            try:
                job = _Job(self, function, arguments, limits)
                with calling_on_stop(job.stop):
                    return job.run()
            finally:
                slots.leave(wanted)

        return await in_thread(work)

    # -- processes ---------------------------------------------------------------------------

    def take(self) -> Worker:
        """Return a process for one job, a waiting one if possible; raise OSError if none starts."""
        if not FORKS:
            return spawned(self.module)
        with self._lock:
            self._live_server()
            worker = self._ready.popleft() if self._ready else None
            return worker or self._live_server().worker()

    def refill(self, *, start_unless_closed_since: int | None = None) -> None:
        """Start processes for the next jobs, if there is a server or one may be started.

        `prepare` may get here late, after `close`: a server started then would never end.
        """
        if not FORKS:
            return
        with suppress(OSError), self._lock:  # the next job reports the error
            if self._server is not None or start_unless_closed_since == self._closings:
                server = self._live_server()
                while len(self._ready) < self._ready_count:
                    self._ready.append(server.worker())

    def _live_server(self) -> ForkServer:
        """Return the fork server, or a new one if it has died. The lock must be held."""
        if self._server is not None and not self._server.is_alive:
            self._server.close()
            self._server = None
            while self._ready:
                self._ready.pop().close()
        if self._server is None:
            self._server = ForkServer(self.module)
        return self._server

    def _after_fork(self) -> None:
        """Forget fork servers after a fork of the host: they belong to the parent."""
        if self._server is not None:
            self._server.forget()
        for worker in self._ready:
            worker.close()
        self._server, self._ready = None, deque()
        self._lock, self._slots = threading.Lock(), JobSlots(self._at_once)


class _Result(NamedTuple):
    items: list[Any]
    value: Any
    stopped: JobStopped | None


class _Job:
    """One call, from its first byte to the end of its process."""

    def __init__(
        self,
        jobs: Jobs,
        function: str,
        arguments: tuple[Any, ...],
        limits: JobLimits | None,
        data: bytes | memoryview | None = None,
    ) -> None:
        self._jobs = jobs
        self._name = f"{jobs.module}.{function}"
        self._limits = limits or jobs.limits
        header = {**asdict(self._limits), "function": function, "data": data is not None}
        header["serves"] = False
        self._frames = framed(header) + framed(arguments)
        self._data = data
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._is_stopped = False

    def run(self) -> _Result:
        try:
            with self._lock:
                worker = self._worker = self._jobs.take()
        except OSError as error:
            return self._failed("crash", f"the process could not be started: {error}")
        if self._is_stopped:
            worker.kill()
        items: list[Any] = []
        try:
            found = self._exchange(worker, items)
        except TimeoutError:
            found = self._failed("time", f"it took more than {self._limits.seconds:g} s")
        except OSError as error:
            found = self._failed("crash", str(error))
        finally:
            with self._lock:
                self._worker = None
            self._jobs.refill()
        if found is not None and found.stopped is None:
            worker.close()
        else:  # It may be running; keep its slot until it has ended.
            status = worker.finish()
            found = found or self._ended(status)
        return found._replace(items=items)

    def stop(self) -> None:
        """Kill the process, if it has started; may be called from any thread."""
        with self._lock:
            self._is_stopped = True
            if self._worker is not None:
                self._worker.kill()

    def _exchange(self, worker: Worker, items: list[Any]) -> _Result | None:
        """Send the job and read until its end; None if the process ended without a result.

        The job's time starts when its process has loaded everything.
        """
        if received(worker, len(_process.READY), time.monotonic() + _START_SECONDS) is None:
            return None
        deadline = time.monotonic() + self._limits.seconds
        try:
            worker.send(self._frames, deadline)
            if self._data is not None:
                worker.send(_HEAD.pack(_process.DONE, len(self._data)), deadline)
                worker.send(self._data, deadline)
        except ConnectionError:
            return None
        left = self._limits.output_bytes
        while True:
            head = received(worker, _HEAD.size, deadline)
            if head is None:
                return None
            kind, size = _HEAD.unpack(head)
            left -= size
            if kind == _process.OUTPUT or left < 0:
                return self._failed("output", f"more than {self._limits.output_bytes:,} bytes")
            data = received(worker, size, deadline)
            if data is None:
                return None
            if kind == _process.ITEM:
                items.append(json.loads(data))
            else:
                return self._final(kind, data)

    def _final(self, kind: bytes, data: bytes) -> _Result:
        found = final_value(self._name, kind, data, self._limits)
        if isinstance(found, JobStopped):
            return _Result([], None, found)
        return _Result([], found, None)

    def _ended(self, status: int | None) -> _Result:
        return _Result([], None, ended(self._name, status, self._limits.seconds))

    def _failed(self, reason: Any, message: str) -> _Result:
        return _Result([], None, JobStopped(reason, f"{self._name}: {message}"))


def final_value(name: str, kind: bytes, data: bytes, limits: JobLimits) -> Any:
    """Return the value of the last frame of a call, or a JobStopped that says why there is none."""
    if kind == _process.DONE:
        return json.loads(data)
    if kind == _process.TEXT:
        return data.decode("utf-8", "surrogatepass")
    if kind == _process.MEMORY:
        return JobStopped("memory", f"{name}: more than {limits.memory_bytes >> 20} MiB")
    return JobStopped("crash", f"{name}: {json.loads(data)}")


def ended(name: str, status: int | None, seconds: float) -> JobStopped:
    """Return why a process ended without a result, judging by its exit status."""
    if status == _SIGXCPU:
        return JobStopped("time", f"{name}: it took more than {seconds:g} s")
    return JobStopped("crash", f"{name}: its process ended with status {status}")


def received(worker: Worker, size: int, deadline: float) -> bytes | None:
    """Return exactly `size` bytes; None if the process ended before sending them."""
    data = bytearray()
    while len(data) < size:
        try:
            piece = worker.receive(min(size - len(data), 1 << 20), deadline)
        except ConnectionError:
            return None
        if not piece:
            return None
        data += piece
    return bytes(data)


def framed(value: Any) -> bytes:
    """Return a value as a frame of JSON."""
    data = json.dumps(value).encode()
    return _HEAD.pack(_process.DONE, len(data)) + data


def _value(found: _Result) -> Any:
    if found.stopped is not None:
        raise found.stopped
    return found.value


_all: "weakref.WeakSet[Jobs]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for each in list(_all):
        each.close()


def _after_fork() -> None:
    for each in list(_all):
        each._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
