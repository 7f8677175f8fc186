"""What the ray environment does apart from Ray: carrying, files of a node, handing out actors."""

import asyncio
import os
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from rlm import RLM
from rlm._util.distribution import own_version
from rlm.context import store_context
from rlm.environments._forked import ForkedSession
from rlm.environments._relay import Relay
from rlm.environments._session import greeting_of
from rlm.environments._shared import written_context
from rlm.environments.local import LocalEnvironment
from rlm.environments.ray import RayEnvironment, cluster
from rlm.environments.ray import pool as pools
from rlm.environments.ray.actor import Carrier, NodeFiles, Place
from rlm.environments.ray.pool import Pool
from rlm.errors import ConfigError, SessionDied
from tests.environments.conftest import FakeHost

OPTIONS: dict[str, Any] = {"seed": 0, "tools": [], "cell_memory_bytes": 256 << 20}


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "is_installed", lambda: False)
    assert "pip install 'recursivelm[ray]'" in str(RayEnvironment.problem())
    with (
        RLM("offline/extractive", environment="ray") as engine,
        pytest.raises(ConfigError, match=r"pip install 'recursivelm\[ray\]'"),
    ):
        engine.ask("what?", "x")


# -- carrying -------------------------------------------------------------------------------------


class Carried:
    """A pipe to a carrier in this process, as an actor's methods make it."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier

    async def send(self, data: bytes) -> None:
        self.carrier.take(data)

    async def receive(self) -> bytes:
        return await self.carrier.give()

    async def close(self) -> None:
        await self.carrier.close()

    async def ending(self) -> str:
        return "has ended"


async def opened(place: LocalEnvironment) -> ForkedSession:
    greeting = greeting_of(OPTIONS)
    carrier = Carrier(await place.open_ends(greeting))
    relay = Relay(Carried(carrier))

    async def lend(source: Any) -> dict[str, Any] | None:
        shared = written_context(source)
        carrier.lend(shared.fd)
        lent.append(shared.fd)
        return shared.layout

    report = {**await place.describe(), "forks": False}
    return await ForkedSession(
        relay.connect(),
        FakeHost(),
        OPTIONS,
        report=report,
        sends_fds=False,
        lend=lend,
        close_sandbox=relay.close,
    ).start(None)


lent: list[int] = []


async def test_a_session_is_relayed_completely() -> None:
    session = await opened(LocalEnvironment())
    large = "print('x' * 3_000_000)"
    assert (await session.execute(large, timeout_seconds=60)).stdout_chars == 3_000_001
    asked = "print(len(llm_query('y' * 2_000_000)))"
    assert (await session.execute(asked, timeout_seconds=60)).stdout == "2000003\n"
    with pytest.raises(SessionDied, match="SIGKILL"):
        await session.execute("import os; os.kill(os.getpid(), 9)", timeout_seconds=60)
    await session.close()


async def test_a_shared_file_is_lent_together_with_its_identity() -> None:
    session = await opened(LocalEnvironment())
    await session.load("context", store_context("wörld " * 50_000))
    shown = await session.execute("print(len(context), context[:5])", timeout_seconds=60)
    assert shown.stdout == "300000 wörld\n"
    assert len(lent) == 1
    os.close(lent.pop())
    await session.load("context", store_context("small"))  # too small for a file
    assert await session.fetch("context") == "small"
    assert lent == []
    await session.close()


async def test_an_interrupt_is_relayed() -> None:
    session = await opened(LocalEnvironment())
    stopped = await session.execute("while True: pass", timeout_seconds=0.5)
    assert stopped.error is not None
    assert stopped.error.type == "TimeoutError"
    assert (await session.execute("print(1)", timeout_seconds=60)).stdout == "1\n"
    await session.close()


# -- files of a node ------------------------------------------------------------------------------


async def piece(data: bytes) -> bytes:
    return data


async def test_a_file_is_written_once_and_opened_by_other_processes() -> None:
    writer, other = NodeFiles(), NodeFiles()
    place = await writer.write("one", [piece(b"a" * 200_000), piece(b"b")])
    assert other.find("one", None) is None
    fd = other.find("one", place)
    assert fd is not None
    assert os.pread(fd, 10, 199_999) == b"ab"
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(writer.find("one", None) or 0, 0)
    writer.forget(["one"])
    assert writer.find("one", None) is None
    assert os.pread(fd, 1, 0) == b"a"  # it exists as long as it is referenced
    other.forget(["one", "never known"])


async def test_a_file_with_another_identity_is_not_used() -> None:
    writer, other = NodeFiles(), NodeFiles()
    place = await writer.write("one", [piece(b"a")])
    wrong = Place(place.process, place.fd, place.device, place.inode + 1, place.size_bytes)
    gone = Place(2**22 + 1, place.fd, place.device, place.inode, place.size_bytes)
    assert other.find("one", wrong) is None
    assert other.find("one", gone) is None
    writer.forget(["one"])
    assert other.find("one", place) is None


# -- handing out actors ---------------------------------------------------------------------------


class Actors:
    """Stands in for a cluster with room for this number of actors."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.ready: list[Future[dict[str, Any]]] = []

    def has_room(self) -> bool:
        return len(self.ready) < self.room

    def make(self) -> Any:
        future: Future[dict[str, Any]] = Future()
        self.ready.append(future)
        if len(self.ready) <= self.room:
            self.arrive(len(self.ready) - 1)
        reference = SimpleNamespace(future=lambda: future)
        return SimpleNamespace(prepare=SimpleNamespace(remote=lambda: reference))

    def arrive(self, number: int, version: str = own_version()) -> None:
        facts = {"version": version, "node": f"node-{number}", "process": number, "report": {}}
        self.ready[number].set_result(facts)


async def test_a_free_actor_is_reused() -> None:
    actors = Actors(room=2)
    pool = Pool(actors.make, actors.has_room)
    first, second = await pool.take(), await pool.take()
    assert first is not second
    pool.give_back(first)
    assert await pool.take() is first
    assert len(actors.ready) == 2


async def test_a_waiter_gets_the_first_free_actor() -> None:
    actors = Actors(room=1)
    pool = Pool(actors.make, actors.has_room)
    first = await pool.take()
    waiting = asyncio.ensure_future(pool.take())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    pool.give_back(first)
    assert await waiting is first
    actors.arrive(1)
    assert [host.sessions for host in pool.hosts] == [1, 0]


async def test_a_full_cluster_shares_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "PATIENCE_SECONDS", 0.02)
    actors = Actors(room=1)
    pool = Pool(actors.make, actors.has_room)
    taken = [await pool.take() for _ in range(4)]
    assert len({id(host) for host in taken}) == 1
    assert taken[0].sessions == 4
    assert len(actors.ready) == 2  # one more was requested, and nothing waits for it
    actors.arrive(1)
    assert (await pool.take()).node == "node-1"


async def test_a_slow_cluster_that_is_not_full_shares_no_actors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pools, "PATIENCE_SECONDS", 0.001)
    actors, asked = Actors(room=1), 0

    def has_room() -> bool:
        nonlocal asked
        asked += 1
        if asked == 10:
            actors.arrive(1)
        return True

    pool = Pool(actors.make, has_room)
    first = await pool.take()
    assert await pool.take() is not first
    assert [host.sessions for host in pool.hosts] == [1, 1]
    assert asked >= 10


async def test_room_that_never_becomes_usable_is_not_awaited_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is free may be spread over nodes, none of which has enough of it."""
    monkeypatch.setattr(pools, "PATIENCE_SECONDS", 0.001)
    pool = Pool(Actors(room=1).make, lambda: True)
    first = await pool.take()
    assert await pool.take() is first


async def test_a_lost_actor_is_not_handed_out() -> None:
    actors = Actors(room=9)
    pool = Pool(actors.make, actors.has_room)
    first = await pool.take()
    first.is_lost = True
    pool.give_back(first)
    assert (await pool.take()) is not first
    assert len(pool.hosts) == 1


async def test_cancelling_a_waiter_leaves_no_actor_taken() -> None:
    actors = Actors(room=0)
    pool = Pool(actors.make, actors.has_room)
    waiting = asyncio.ensure_future(pool.take())
    while not actors.ready:
        await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    actors.arrive(0)
    assert [host.sessions for host in pool.hosts] == [0]


@pytest.mark.parametrize(("version", "kind"), [("0.0.0", ConfigError), (None, SessionDied)])
async def test_an_actor_that_does_not_start_is_reported(
    version: str | None, kind: type[Exception]
) -> None:
    actors = Actors(room=0)
    pool = Pool(actors.make, actors.has_room)
    waiting = asyncio.ensure_future(pool.take())
    while not actors.ready:
        await asyncio.sleep(0.01)
    if version is None:
        actors.ready[0].set_exception(RuntimeError("its node is gone"))
    else:
        actors.arrive(0, version)
    with pytest.raises(kind, match=r"same version|its node is gone"):
        await waiting


def test_rays_errors_are_reported_in_our_words() -> None:
    wrapped = RuntimeError("long and with colours")
    vars(wrapped)["cause"] = ConfigError("the node says no")
    assert str(cluster.translated(wrapped)) == "the node says no"
    missing = cluster.translated(RuntimeError("ModuleNotFoundError: No module named 'rlm'"))
    assert isinstance(missing, ConfigError)
    assert "runtime_env" in str(missing)
    assert isinstance(cluster.translated(RuntimeError("x" * 9_999)), SessionDied)
