"""Starts zygotes and asks them for sessions: one zygote for each configuration of a sandbox.

Starting a zygote takes tens of milliseconds; forking a session takes a few, and taking one that is
kept ready takes almost none. All sessions of a zygote have the same memory addresses, so it is
replaced from time to time, in the background. Everything here may be called from any thread and any
event loop.
"""

import asyncio
import atexit
import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rlm import worker
from rlm.environments._forkserver import Pair, handshake, request
from rlm.errors import ConfigError, SessionDied
from rlm.worker.sandbox import orders
from rlm.worker.sandbox.preload import SINGLE_THREADED

__all__ = ["Zygote", "close_all", "zygote_for"]

_WORKER_FOLDER = str(Path(worker.__file__).parent)
_START_SECONDS = 30.0
_FAREWELL_SECONDS = 2.0
_MAX_SESSIONS = 1_000
_MAX_SECONDS = 3_600.0
"""A zygote is replaced after this many sessions, or this many seconds."""
_NOTICE_SECONDS = 60.0
"""How long a replaced zygote still makes sessions: another thread may be about to ask for one."""
_MAX_KINDS = 4
"""Sessions are kept ready for this many different greetings."""

# Loads the worker's folder as a separate package, so that no other file of rlm can be imported.
# The folder's path comes over the socket at stdin, because cells can see the command line.
_BOOT = """
import os, sys
sys.path[:] = [entry for entry in sys.path if entry]
folder = os.fsdecode(os.read(0, int.from_bytes(os.read(0, 4), "little")))
control = os.dup(0)
os.dup2(1, 0)
import importlib.util
spec = importlib.util.spec_from_file_location(
    "rlm_worker", folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules["rlm_worker"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["rlm_worker"])
from rlm_worker.sandbox.start import main
main(control)
"""

# No variable of the host's environment is passed on. Few arenas save memory in every session.
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "2"}


class Zygote:
    """A running zygote, its report, and the sessions it keeps ready."""

    def __init__(self, python: str, settings: str) -> None:
        """Start the zygote and wait for its report; this blocks for tens of milliseconds."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                more = SINGLE_THREADED if json.loads(settings)["packages"] else {}
                self._process = _start(python, theirs, {**_ENVIRONMENT, **more})
            self._control = ours
            self.report: dict[str, Any] = self._handshake(settings)
        except BaseException:
            ours.close()
            raise
        self._ready: dict[bytes, deque[Pair]] = {}  # By greeting, the latest last.
        self._lock = threading.Lock()
        self.host_pid = os.getpid()
        self._started = time.monotonic()
        self._made = 0

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def is_worn(self) -> bool:
        """Whether it should be replaced."""
        return self._made >= _MAX_SESSIONS or time.monotonic() - self._started >= _MAX_SECONDS

    def retire(self) -> None:
        """End the sessions kept ready now, and the zygote after its last session."""
        with self._lock:
            forgotten = list(self._ready.values())
            self._ready.clear()
        _close(pair for pairs in forgotten for pair in pairs)
        with contextlib.suppress(OSError):
            self._control.send(orders.RETIRE, socket.MSG_DONTWAIT)

    def take(self, greeting: bytes) -> Pair | None:
        """Return a session that was kept ready for this greeting, if there is one."""
        with self._lock:
            ready = self._ready.get(greeting)
            return ready.popleft() if ready else None

    async def fork(self, greeting: bytes) -> Pair:
        """Fork a new session as soon as possible."""
        self._made += 1
        while True:
            try:
                return request(self._control, orders.NOW, greeting)
            except BlockingIOError:
                await asyncio.sleep(0.005)  # Hundreds are being made right now.

    def refill(self, count: int, greeting: bytes) -> None:
        """Keep `count` sessions ready for this greeting; they are made in the background.

        The next run will most likely need the same settings as this one.
        """
        with self._lock:
            ready = self._ready[greeting] = self._ready.pop(greeting, deque())
            forgotten = [self._ready.pop(each) for each in list(self._ready)[:-_MAX_KINDS]]
        _close(pair for pairs in forgotten for pair in pairs)
        with contextlib.suppress(BlockingIOError, SessionDied):
            for _ in range(count - len(ready)):
                pair = request(self._control, orders.WARM, greeting)
                self._made += 1
                with self._lock:
                    ready.append(pair)

    def close(self) -> None:
        """End the zygote and every session forked from it."""
        self._control.close()
        _close(pair for pairs in self._ready.values() for pair in pairs)
        self._ready.clear()
        try:
            self._process.wait(_FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _handshake(self, settings: str) -> dict[str, Any]:
        self._control.settimeout(_START_SECONDS)
        try:
            folder = os.fsencode(_WORKER_FOLDER)
            self._control.sendall(len(folder).to_bytes(4, "little") + folder)
            report = handshake(self._control, settings)
        except OSError as error:
            raise SessionDied(self._last_words()) from error
        except ConfigError:
            self._process.wait()
            raise
        finally:
            assert self._process.stderr is not None
            self._process.stderr.close()  # Nothing is written there after the report.
        self._control.settimeout(None)
        return report

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)
        self._process.kill()
        words = self._process.stderr.read().decode("utf-8", "replace").strip()
        how = f"exited with status {self._process.wait()} before it was ready"
        return f"the sandbox's fork server {how}: {words.splitlines()[-1] if words else 'silently'}"


def _close(pairs: Iterable[Pair]) -> None:
    for stream, monitor in pairs:
        stream.close()
        monitor.close()


def _start(
    python: str, control: socket.socket, environment: dict[str, str]
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - our own interpreter and boot code
        [python, "-S", "-s", "-c", _BOOT],
        env=environment,
        cwd="/",
        stdin=control.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


# -- one for each configuration -------------------------------------------------------------------

_Key = tuple[int, str, str]

_zygotes: "dict[_Key, Future[Zygote]]" = {}
_successors: "dict[_Key, Future[Zygote]]" = {}
_replaced: list[tuple[float, Zygote]] = []
"""Zygotes that were replaced and have not ended, with the time of their replacement."""
_lock = threading.Lock()


async def zygote_for(python: str, settings: str) -> Zygote:
    """Return the zygote for a configuration, given as JSON; start one if none is running.

    A process that was forked from a host has its own zygotes.
    """
    key = (os.getpid(), python, settings)
    with _lock:
        known = _zygotes.get(key)
        if known is None or _is_over(known):
            known = _zygotes[key] = _started(python, settings)
        elif known.done() and known.result().is_worn:
            known = _replacement(key, known)
        _let_go_of_replaced()
    # Awaiting a finished future would cost a detour through the loop's wake-up socket.
    if known.done():
        return known.result()
    return await asyncio.shield(asyncio.wrap_future(known))  # Others may be waiting for it too.


def _replacement(key: _Key, worn: "Future[Zygote]") -> "Future[Zygote]":
    """Return the successor of a zygote once it is ready, and the old one until then."""
    successor = _successors.get(key)
    if successor is None:
        successor = _successors[key] = _started(*key[1:])
    if not successor.done():
        return worn
    del _successors[key]
    if successor.exception() is not None:
        return worn  # The next session tries again.
    _zygotes[key] = successor
    _replaced.append((time.monotonic(), worn.result()))
    return successor


def _let_go_of_replaced() -> None:
    """Retire replaced zygotes after a while, and reap those that have ended."""
    for entry in list(_replaced):
        since, zygote = entry
        if not zygote.is_alive:
            _replaced.remove(entry)
            zygote.close()
        elif time.monotonic() - since >= _NOTICE_SECONDS:
            zygote.retire()


def close_all() -> None:
    """End every zygote of this process, and with them every session."""
    with _lock:
        mine = [key for key in _zygotes if key[0] == os.getpid()]
        ended = [_zygotes.pop(key) for key in mine]
        ended += [_successors.pop(key) for key in list(_successors) if key[0] == os.getpid()]
        replaced = [zygote for _, zygote in _replaced if zygote.host_pid == os.getpid()]
        _replaced.clear()
    for zygote in replaced:
        zygote.close()
    for each in ended:
        if each.done() and each.exception() is None:
            each.result().close()


def _started(python: str, settings: str) -> "Future[Zygote]":
    """Start a zygote in a thread, which ends when the zygote is ready."""
    with_thread = ThreadPoolExecutor(1, thread_name_prefix="rlm-zygote-start")
    future = with_thread.submit(Zygote, python, settings)
    with_thread.shutdown(wait=False)
    return future


def _is_over(future: "Future[Zygote]") -> bool:
    if not future.done():
        return False
    if future.exception() is not None:
        return True
    if future.result().is_alive:
        return False
    future.result().close()  # It was killed; close what it left open here.
    return True


atexit.register(close_all)
