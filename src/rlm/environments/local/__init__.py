"""`environment="local"`: hardened processes on this machine.

A zygote (see `rlm.worker.sandbox.zygote`) forks every session. `rlm.worker.sandbox.layers` decides
what isolates its code, and `LocalEnvironment.describe` reports it.
"""

import asyncio
import functools
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlm.environments._forked import ForkedSession
from rlm.environments._forkserver import Pair, is_greeted
from rlm.environments._session import greeting_of
from rlm.environments._shared import shared_context, worth_sharing
from rlm.environments.local.zygotes import Zygote, zygote_for
from rlm.errors import ConfigError, SessionDied
from rlm.protocols import BaseEnvironment, ContextSource, Host
from rlm.worker.sandbox.orders import MACHINES

__all__ = ["LocalEnvironment"]

_log = logging.getLogger(__name__)

_REFILL_SECONDS = 0.03
_NOT_LINUX = "its layers need Linux (also in a virtual machine, or WSL 2)"


class LocalEnvironment(BaseEnvironment):
    """An environment whose sessions are hardened processes of this machine.

    `packages`: installed distributions that cells may import besides the standard library.
    `read_only_paths`: files and folders of this machine that cells may read, at the same paths.
    `scratch_bytes`: the size of the folder a session may write to, where the system allows one.
    `export_to`: a folder that gets the files of each session, in a new folder, when it closes.
    `max_threads`, `cpu_seconds`: limits of one session; None for no limit on CPU time.
    `warm_sessions`: how many sessions are kept ready. `checkpoints`: whether variables survive a
    kill. `allow_unsafe`: run even if a required layer is missing. `without`: layers not to use
    ("namespaces", "landlock", "cgroup"). `cgroup`: a folder of control groups that this process
    may divide, instead of the one it finds. `python`: the interpreter for cells; this one by
    default.
    """

    name = "local"
    is_sandbox = True

    def __init__(
        self,
        *,
        packages: Sequence[str] = (),
        read_only_paths: Sequence[str | Path] = (),
        scratch_bytes: int = 64 << 20,
        export_to: str | Path | None = None,
        max_threads: int = 128,
        cpu_seconds: int | None = 3_600,
        warm_sessions: int = 2,
        checkpoints: bool = True,
        allow_unsafe: bool = False,
        without: Sequence[str] = (),
        cgroup: str | Path | None = None,
        python: str = sys.executable,
    ) -> None:
        found = _allowed(packages, python)
        grants = [str(_existing(path)) for path in read_only_paths]
        self._python = python
        self._settings: dict[str, Any] = {
            "packages": list(found.get("imports", ())),
            "search_path": list(found.get("search_path", ())),
            "roots": [list(root) for root in found.get("roots", ())],
            "layers": {
                "checkpoints": checkpoints,
                "readable": [*map(str, found.get("readable", ())), *grants],
                "listable": [*map(str, found.get("listable", ()))],
                "scratch_bytes": scratch_bytes,
                "max_processes": max_threads,
                "cpu_seconds": cpu_seconds,
                "allow_unsafe": allow_unsafe,
                "forbid": list(without),
                "cgroup": "" if cgroup is None else str(_existing(cgroup, "cgroup")),
            },
        }
        self._settings_json = json.dumps(self._settings, sort_keys=True)
        self._export_to = None if export_to is None else Path(export_to)
        self._warm_sessions = warm_sessions
        self._sessions: set[ForkedSession] = set()

    @classmethod
    def problem(cls) -> str | None:
        """Return why this system rules it out, or None; only `open` can find the other reasons."""
        missing = _missing_in_kernel() if sys.platform == "linux" else _NOT_LINUX
        if missing is None:
            return None
        return (
            f"environment={cls.name!r} can't isolate code on this system: {missing}. Use "
            "environment='auto', which chooses one that can"
        )

    async def prepare(self, context: ContextSource) -> None:
        """Write a large context to shared memory before the first session needs it."""
        if worth_sharing(context):
            await asyncio.to_thread(shared_context, context)

    async def open(self, host: Host, options: dict[str, Any]) -> ForkedSession:
        """Take or fork a session and wait until it is ready.

        `options`: seed, tools ([{"name", "description"}]), kept_output_chars, cell_memory_bytes.
        """
        zygote = await self._zygote()
        greeting = greeting_of(options)
        kept_ready = zygote.take(greeting)
        try:
            ends = kept_ready or await zygote.fork(greeting)
            session = await self._open(ends, zygote, host, options, greeting)
        except SessionDied:
            if kept_ready is None:
                raise
            ends = await zygote.fork(greeting)
            session = await self._open(ends, zygote, host, options, greeting)
        self._sessions.add(session)
        session.when_closed(self._sessions.discard)
        self._refill_later(zygote, greeting)
        return session

    async def open_ends(self, greeting: bytes) -> Pair:
        """Return the two sockets of a new session, for a host on another machine.

        The greeting has been sent if `is_greeted(greeting)`.
        """
        zygote = await self._zygote()
        ends = zygote.take(greeting) or await zygote.fork(greeting)
        self._refill_later(zygote, greeting)
        return ends

    def _refill_later(self, zygote: Zygote, greeting: bytes) -> None:
        """Prepare more sessions in a moment, so that this one is not slowed down."""
        loop = asyncio.get_running_loop()
        loop.call_later(_REFILL_SECONDS, zygote.refill, self._warm_sessions, greeting)

    async def describe(self) -> dict[str, Any]:
        """Return which layers protect this machine."""
        report = (await self._zygote()).report
        return {"isolation": "a hardened process of this machine", **report}

    async def close(self) -> None:
        """Close every session that is still open; the zygote stays for the next environment."""
        await asyncio.gather(*(session.close() for session in list(self._sessions)))

    async def _zygote(self) -> Zygote:
        if sys.platform != "linux":
            raise ConfigError(self.problem() or _NOT_LINUX)
        return await zygote_for(self._python, self._settings_json)

    async def _open(
        self, ends: Pair, zygote: Zygote, host: Host, options: dict[str, Any], greeting: bytes
    ) -> ForkedSession:
        report = zygote.report
        if not (report["seccomp"] and report["file_system"]):  # Only with allow_unsafe.
            _log.warning("cells are not isolated here: %s", "; ".join(report["missing"]))
        return await ForkedSession(
            ends,
            host,
            options,
            report=report,
            export_to=self._export_to,
        ).start(None if is_greeted(greeting) else greeting)


def _allowed(packages: Sequence[str], python: str) -> dict[str, Any]:
    """Return the fields of `Packages`; an empty dict if no package is allowed."""
    if not packages:
        return {}
    from rlm.environments.local.packages import resolve  # imported here because few runs need it

    return asdict(resolve(packages, python=python))


def _existing(path: str | Path, option: str = "read_only_paths") -> Path:
    absolute = Path(path).absolute()
    if not absolute.exists():
        raise ConfigError(f"{option} names {str(path)!r}, which does not exist")
    return absolute


@functools.cache
def _missing_in_kernel() -> str | None:
    """Return what the layers need and this kernel lacks, without starting anything."""
    machine = os.uname().machine
    if machine not in MACHINES or sys.maxsize < 1 << 32:
        return f"its layers need a 64-bit {' or '.join(MACHINES)}, but this is {machine}"
    try:
        status = Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        return None
    return None if "\nSeccomp:" in status else "its layers need seccomp, which this kernel lacks"
