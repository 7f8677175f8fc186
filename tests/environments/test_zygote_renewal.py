"""Zygotes are replaced now and then, since all sessions of one have the same layout of memory."""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator

import pytest

from rlm.environments.local import LocalEnvironment, zygotes
from rlm.protocols import Session
from tests.environments.conftest import FakeHost

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="its layers are Linux's")

odd_bytes = itertools.count(7)
"""Makes the settings of environments differ, because equal ones share a zygote."""

LAYOUT = "import ctypes\nprint(id(ctypes), id(Ellipsis))"


@pytest.fixture
async def environment(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalEnvironment]:
    """Return an environment with its own zygote, which is worn after three sessions."""
    monkeypatch.setattr(zygotes, "_MAX_SESSIONS", 3)
    made = LocalEnvironment(warm_sessions=0, scratch_bytes=(1 << 20) + next(odd_bytes))
    yield made
    await made.close()


async def layout(session: Session) -> str:
    return (await session.execute(LAYOUT, timeout_seconds=30)).stdout


async def opened(environment: LocalEnvironment, count: int) -> list[Session]:
    return [await environment.open(FakeHost(), {}) for _ in range(count)]


async def successor_of(first: zygotes.Zygote, environment: LocalEnvironment) -> zygotes.Zygote:
    async with asyncio.timeout(30):
        while (found := await environment._zygote()) is first:
            await asyncio.sleep(0.02)
    return found


async def test_a_worn_zygote_is_replaced_and_its_sessions_continue(
    environment: LocalEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await opened(environment, 3)
    first = await environment._zygote()
    assert first.is_worn
    second = await successor_of(first, environment)
    (after,) = await opened(environment, 1)
    old, new = {await layout(each) for each in before}, await layout(after)
    assert len(old) == 1
    assert new not in old
    assert first.is_alive  # Its sessions are.
    monkeypatch.setattr(zygotes, "_NOTICE_SECONDS", 0.0)
    assert await environment._zygote() is second
    for each in before[1:]:
        await each.close()
    assert await layout(before[0]) in old
    await before[0].close()
    async with asyncio.timeout(30):
        while first.is_alive:
            await asyncio.sleep(0.02)
    await environment._zygote()
    assert first not in [zygote for _, zygote in zygotes._replaced]
    assert await layout(after) == new


async def test_a_replaced_zygote_still_serves_for_a_while(
    environment: LocalEnvironment,
) -> None:
    sessions = await opened(environment, 3)
    first = await environment._zygote()
    await successor_of(first, environment)
    for each in sessions:
        await each.close()
    stream, monitor = await first.fork(b"")
    with stream, monitor:
        await asyncio.sleep(0.05)
        assert first.is_alive


async def test_a_new_zygote_is_not_worn(environment: LocalEnvironment) -> None:
    await opened(environment, 2)
    first = await environment._zygote()
    assert not first.is_worn
    assert await environment._zygote() is first
