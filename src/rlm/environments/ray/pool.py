"""The actors of one environment: started when needed, reused, and replaced when they are lost.

Each hosts one session while the cluster has room. When it is full, actors take further sessions: a
run whose children waited for the resources that it holds itself would wait forever. Everything here
may be called from any thread and any event loop.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rlm._util.distribution import NAME, own_version
from rlm.environments.ray.cluster import awaited, landed, sdk, translated
from rlm.errors import ConfigError, RLMError, SessionDied, SessionError

__all__ = ["ActorPipe", "Pool", "RemoteHost"]

PATIENCE_SECONDS = 3.0
"""How long a session waits for a new actor before it checks whether the cluster is full."""

_MAX_WAITS = 20
"""How many times it waits if not; free resources may be spread over too many nodes."""


class RemoteHost:
    """An actor that is ready (`rlm.environments.ray.actor`), as the driver sees it."""

    def __init__(self, handle: Any, facts: dict[str, Any]) -> None:
        self._handle = handle
        self.node: str = facts["node"]
        self.process: int = facts["process"]
        self.report: dict[str, Any] = facts["report"]
        self.sessions = 0
        self.is_lost = False
        self.contexts: set[str] = set()
        """The names of the contexts whose files it holds."""

    async def call(self, method: str, *given: Any) -> Any:
        """Call a method; if the actor can't be reached, mark it as lost and raise SessionDied."""
        try:
            reference = getattr(self._handle, method).remote(*given)
            return await awaited(reference)
        except SessionDied as error:
            if isinstance(error.__cause__, sdk().exceptions.RayActorError | ConnectionError):
                self.is_lost = True
                short = self.node[:8]
                raise SessionDied(f"the actor on Ray node {short} was lost: {error}") from error
            raise

    def tell(self, method: str, *given: Any) -> None:
        """Call a method without waiting for the result."""
        with contextlib.suppress(sdk().exceptions.RayError, ConnectionError):
            getattr(self._handle, method).remote(*given)

    def kill(self) -> None:
        """End its process, and every session in it; may block for a moment."""
        self.is_lost = True
        with contextlib.suppress(sdk().exceptions.RayError, ConnectionError, ValueError):
            sdk().kill(self._handle)


class Pool:
    """A pool of actors. `make` starts one and returns its handle, ready or not.

    `has_room` says whether the cluster has room for one more; it may block for a moment.
    """

    def __init__(self, make: Callable[[], Any], has_room: Callable[[], bool]) -> None:
        self._make = make
        self._has_room = has_room
        self._is_full = False
        self._lock = threading.Lock()
        self._hosts: list[RemoteHost] = []
        self._coming: dict[int, Any] = {}
        self._waiting: list[Future[RemoteHost]] = []
        self._started = 0
        self._is_closed = False

    @property
    def hosts(self) -> tuple[RemoteHost, ...]:
        """The actors that are ready and not known to be lost."""
        with self._lock:
            return tuple(host for host in self._hosts if not host.is_lost)

    async def take(self) -> RemoteHost:
        """Return an actor for one more session; give it back afterwards."""
        with self._lock:
            self._hosts = [host for host in self._hosts if not host.is_lost]
            idle = next((host for host in self._hosts if not host.sessions), None)
            if idle is not None:
                idle.sessions += 1
                return idle
            waiter: Future[RemoteHost] = Future()
            self._waiting.append(waiter)
            patience = 0.0 if self._is_full else PATIENCE_SECONDS
            wants_more = len(self._coming) < len(self._waiting)
        try:
            if wants_more:
                await asyncio.to_thread(self._start)
            return await self._waited(waiter, patience)
        except BaseException:
            self._withdraw(waiter)
            raise

    def give_back(self, host: RemoteHost) -> None:
        """Note that a session of an actor has ended."""
        with self._lock:
            host.sessions -= 1
            self._hand_out(host)

    async def close(self) -> None:
        """End every actor, including those that are still starting."""
        with self._lock:
            self._is_closed = True
            hosts, self._hosts = self._hosts, []
            coming = list(self._coming.values())
            self._coming.clear()
            waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.set_exception(SessionDied("the environment was closed"))
        await asyncio.to_thread(_kill_all, hosts, coming)

    async def _waited(self, waiter: "Future[RemoteHost]", patience: float) -> RemoteHost:
        here = landed(waiter)
        try:
            shared = None
            for _ in range(_MAX_WAITS):
                done, _ = await asyncio.wait([here], timeout=patience)
                if done:
                    break
                # An actor that is only slow to start is worth waiting for.
                if self._is_full or not await asyncio.to_thread(self._has_room):
                    shared = self._shared_instead_of(waiter)
                    break
            else:
                shared = self._shared_instead_of(waiter)
            host: RemoteHost = shared or await here
            return host
        finally:
            here.cancel()

    def _shared_instead_of(self, waiter: "Future[RemoteHost]") -> RemoteHost | None:
        """Return the actor with the fewest sessions, and stop waiting for a new one."""
        with self._lock:
            living = [host for host in self._hosts if not host.is_lost]
            if not living or waiter.done():
                return None
            self._is_full = True  # Until another actor is ready.
            self._waiting.remove(waiter)
            shared = min(living, key=lambda host: host.sessions)
            shared.sessions += 1
            return shared

    def _withdraw(self, waiter: "Future[RemoteHost]") -> None:
        """Cancel a wait; give back the actor if there is one already."""
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                return
        if waiter.done() and waiter.exception() is None:
            self.give_back(waiter.result())

    def _start(self) -> None:
        handle = self._make()
        ready = handle.prepare.remote()
        with self._lock:
            self._started += 1
            number = self._started
            self._coming[number] = handle
        ready.future().add_done_callback(lambda done: self._arrived(number, handle, done))

    def _arrived(self, number: int, handle: Any, ready: "Future[dict[str, Any]]") -> None:
        """Add an actor that is ready, or fail what waits for it; Ray calls this in a thread."""
        with self._lock:
            if self._coming.pop(number, None) is None:
                return  # The pool was closed.
            self._is_full = False
            error = ready.exception()
            problem = translated(error) if error is not None else _mismatch(ready.result())
            if problem is None:
                host = RemoteHost(handle, ready.result())
                self._hosts.append(host)
                self._hand_out(host)
                return
            failed = self._waiting[:1] if isinstance(problem, SessionDied) else self._waiting[:]
            del self._waiting[: len(failed)]
        for waiter in failed:
            waiter.set_exception(problem)

    def _hand_out(self, host: RemoteHost) -> None:
        """Give an idle actor to the oldest waiting session; the lock must be held."""
        if self._waiting and not host.sessions and not host.is_lost:
            host.sessions += 1
            self._waiting.pop(0).set_result(host)


def _mismatch(facts: dict[str, Any]) -> RLMError | None:
    if facts["version"] == own_version():
        return None
    return ConfigError(
        f"Ray node {facts['node'][:8]} has {NAME} {facts['version']}, this process has "
        f"{own_version()}: install the same version on all of them"
    )


def _kill_all(hosts: list[RemoteHost], coming: list[Any]) -> None:
    for host in hosts:
        host.kill()
    for handle in coming:
        with contextlib.suppress(sdk().exceptions.RayError, ConnectionError, ValueError):
            sdk().kill(handle)


# -- the pipe of a session --

_CLOSE_SECONDS = 30.0


class ActorPipe:
    """A session in an actor, as a `Pipe`; `over` is called once the session is closed."""

    def __init__(self, host: RemoteHost, number: int, over: Callable[[], None]) -> None:
        self._host = host
        self._number = number
        self._over = over
        self._closing: asyncio.Task[None] | None = None

    async def send(self, data: bytes) -> None:
        """Send bytes and wait until the actor has them, to preserve their order."""
        await self._host.call("send", self._number, data)

    async def receive(self) -> bytes:
        """Wait for bytes from the session."""
        data: bytes = await self._host.call("receive", self._number)
        return data

    async def close(self) -> None:
        """End the session and give back the actor."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def ending(self) -> str:
        """Say that the session ended; if the actor is lost, `receive` raises instead."""
        return "has ended"

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._host.call("close", self._number)
        except TimeoutError:
            await asyncio.to_thread(self._host.kill)  # An actor that does not answer is useless.
        except SessionError:
            pass  # It is gone, and the session with it.
        finally:
            self._over()
