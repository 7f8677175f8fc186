"""The actor: hosts sessions on its node, each a fresh fork in the sandbox of `local`.

It knows nothing of models, budgets or journals; it passes bytes on. Everything here runs on the
cluster, and is called by `pool.py`.
"""

import os
from collections.abc import Sequence
from typing import Any

from rlm._util.distribution import own_version
from rlm.environments._forkserver import Pair
from rlm.environments.local import LocalEnvironment
from rlm.environments.ray.carrier import Carrier
from rlm.environments.ray.cluster import sdk
from rlm.environments.ray.files import NodeFiles, Place
from rlm.errors import SessionDied

__all__ = ["SessionHost"]


class SessionHost:
    """Sessions go by numbers, which are the driver's. Usually there is one at a time."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """`settings` are options of `LocalEnvironment`, for this node."""
        self._settings = settings
        self._environment: LocalEnvironment | None = None
        self._carriers: dict[int, Carrier] = {}
        self._files = NodeFiles()

    async def prepare(self) -> dict[str, Any]:
        """Start the zygote; what there is to know of this actor and of the layers on its node."""
        if self._environment is None:
            self._environment = LocalEnvironment(**self._settings)
        return {
            "version": own_version(),
            "node": sdk().get_runtime_context().get_node_id(),
            "process": os.getpid(),
            "report": await self._environment.describe(),
        }

    async def open(self, number: int, greeting: bytes, stale: Sequence[str]) -> None:
        """Fork a session; contexts that are `stale` will not be asked for again."""
        self._files.forget(stale)
        assert self._environment is not None, "prepare comes first"
        ends: Pair = await self._environment.open_ends(greeting)
        self._carriers[number] = Carrier(ends)

    async def send(self, number: int, data: bytes) -> None:
        """Bytes for a session; for one that is over they are dropped."""
        if (carrier := self._carriers.get(number)) is not None:
            carrier.take(data)

    async def receive(self, number: int) -> bytes:
        """Bytes of a session, waiting until there are some; none once it is over."""
        carrier = self._carriers.get(number)
        return await carrier.give() if carrier is not None else b""

    async def keep(self, name: str, pieces: Sequence[Any]) -> Place | None:
        """Write a context's file from what is in the object store; None if it is not there."""
        try:
            return await self._files.write(name, pieces)
        except sdk().exceptions.RayError:
            return None

    async def lend(self, number: int, name: str, place: Place | None) -> bool:
        """Give a session a context's file with the next bytes it gets; False if there is none."""
        if (carrier := self._carriers.get(number)) is None:
            raise SessionDied("the session is over")
        if (fd := self._files.found(name, place)) is None:
            return False
        carrier.lend(fd)
        return True

    async def forget(self, stale: Sequence[str]) -> None:
        """Let go of contexts."""
        self._files.forget(stale)

    async def close(self, number: int) -> None:
        """End a session and everything in it."""
        if (carrier := self._carriers.pop(number, None)) is not None:
            await carrier.close()
