"""`environment="ray"`: sessions on the nodes of a Ray cluster, each in a sandbox like `local`.

Budgets, model calls and journals stay in this process. `actor.py` runs on the nodes; the bytes
of a session go through its methods `send` and `receive`.
"""

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlm.environments._forked import ForkedSession
from rlm.environments._forkserver import is_greeted
from rlm.environments._relay import Relay
from rlm.environments._session import greeting_of
from rlm.environments.ray import cluster
from rlm.environments.ray.actor import SessionHost
from rlm.environments.ray.contexts import ContextStore
from rlm.environments.ray.pool import ActorPipe, Pool, RemoteHost
from rlm.errors import ConfigError, SessionDied
from rlm.protocols import BaseEnvironment, Host

__all__ = ["RayEnvironment"]

_MAX_CALLS = 100_000
"""Concurrent calls in one actor; each session always has one that waits."""


class RayEnvironment(BaseEnvironment):
    """Opens sessions in actors of a Ray cluster.

    `address`: "ray://host:10001", "host:6379" or "auto"; without one, a cluster on this machine is
    joined or started. `num_cpus`, `memory`, `resources`: what each actor reserves on its node; they
    decide how many sessions the cluster runs before actors are shared. `runtime_env`: what Ray
    sets up on nodes. `start_seconds`: how long opening a session may take.
    The other options are those of `local`, for each node; `export_to` is a folder on this machine.
    """

    name = "ray"
    is_sandbox = True
    patience = 4.0
    """Starting an actor takes a second."""

    def __init__(
        self,
        *,
        address: str | None = None,
        num_cpus: float = 0.25,
        memory: int | None = None,
        resources: dict[str, float] | None = None,
        runtime_env: dict[str, Any] | None = None,
        start_seconds: float = 180.0,
        packages: Sequence[str] = (),
        read_only_paths: Sequence[str] = (),
        scratch_bytes: int = 64 << 20,
        export_to: str | Path | None = None,
        max_threads: int = 128,
        cpu_seconds: int | None = 3_600,
        warm_sessions: int = 1,
        allow_unsafe: bool = False,
    ) -> None:
        self._address = address
        self._runtime_env = runtime_env
        self._start_seconds = start_seconds
        self._export_to = None if export_to is None else Path(export_to)
        self._takes: dict[str, Any] = {
            "num_cpus": num_cpus,
            "max_concurrency": _MAX_CALLS,
            "scheduling_strategy": "SPREAD",
        }
        if memory is not None:
            self._takes["memory"] = memory
        if resources:
            self._takes["resources"] = resources
        self._settings: dict[str, Any] = {
            "packages": list(packages),
            "read_only_paths": [str(path) for path in read_only_paths],
            "scratch_bytes": scratch_bytes,
            "max_threads": max_threads,
            "cpu_seconds": cpu_seconds,
            "warm_sessions": warm_sessions,
            "checkpoints": False,  # They need descriptors, which can't be sent.
            "allow_unsafe": allow_unsafe,
        }
        self.contexts = ContextStore()
        self._pool: Pool | None = None
        self._joining: asyncio.Lock | None = None
        self._numbers = itertools.count(1)
        self._sessions: set[ForkedSession] = set()

    @classmethod
    def problem(cls) -> str | None:
        """Return what is missing here; what nodes lack is found when a session is opened."""
        return None if cluster.is_installed() else cluster.missing()

    @property
    def hosts(self) -> tuple[RemoteHost, ...]:
        """The actors that are ready."""
        return self._pool.hosts if self._pool is not None else ()

    async def open(self, host: Host, options: dict[str, Any]) -> ForkedSession:
        """Find or start an actor and have it fork a session."""
        try:
            async with asyncio.timeout(self._start_seconds):
                return await self._open(host, options)
        except TimeoutError:
            raise SessionDied(
                f"no session was ready on the Ray cluster within {self._start_seconds:g} s: check "
                "`ray status`; lower num_cpus, memory or resources, or add nodes"
            ) from None

    async def describe(self) -> dict[str, Any]:
        """Return which layers protect a node."""
        pool = await self._joined()
        host = await pool.take()
        pool.give_back(host)
        facts = {"isolation": "a hardened process on a node of a Ray cluster", "node": host.node}
        return {**host.report, **facts}

    async def close(self) -> None:
        """Close every session that is still open, end all actors, and leave the cluster."""
        await asyncio.gather(*(session.close() for session in list(self._sessions)))
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
            await cluster.leave()

    async def _joined(self) -> Pool:
        if self._pool is None:
            self._joining = self._joining or asyncio.Lock()
            async with self._joining:
                if self._pool is None:
                    self._pool = await asyncio.shield(asyncio.ensure_future(self._join()))
        return self._pool

    async def _join(self) -> Pool:
        if (problem := self.problem()) is not None:
            raise ConfigError(problem)
        ray = await cluster.join(self._address, self._runtime_env)
        actor = ray.remote(**self._takes)(SessionHost)
        takes = {"CPU": self._takes["num_cpus"], **self._takes.get("resources", {})}
        if "memory" in self._takes:
            takes["memory"] = self._takes["memory"]
        return Pool(lambda: actor.remote(self._settings), lambda: cluster.has_room(takes))

    async def _open(self, host: Host, options: dict[str, Any]) -> ForkedSession:
        """Try actors until one works; several may be lost together with a node."""
        pool = await self._joined()
        while True:
            remote = await pool.take()
            try:
                return await self._open_on(pool, remote, host, options)
            except SessionDied:
                if not remote.is_lost:
                    raise

    async def _open_on(
        self, pool: Pool, remote: RemoteHost, host: Host, options: dict[str, Any]
    ) -> ForkedSession:
        number, greeting = next(self._numbers), greeting_of(options)
        pipe = ActorPipe(remote, number, lambda: pool.give_back(remote))
        try:
            await remote.call("open", number, greeting, self.contexts.stale(remote))
        except BaseException:
            await asyncio.shield(pipe.close())
            raise
        relay = Relay(pipe)
        try:
            session = await ForkedSession(
                relay.connect(),
                host,
                options,
                report={**remote.report, "forks": False},
                export_to=self._export_to,
                sends_fds=False,
                lend=lambda source: self.contexts.lend(remote, number, source),
                close_sandbox=relay.close,
            ).start(None if is_greeted(greeting) else greeting)
        except BaseException:
            await asyncio.shield(relay.close())
            raise
        self._sessions.add(session)
        session.when_closed(self._sessions.discard)
        return session
