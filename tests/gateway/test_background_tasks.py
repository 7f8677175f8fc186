"""The SDK cancels a request at every wait; work that needs a cleanup is cancelled only once."""

import asyncio

import anyio
import pytest

from rlm.gateway.tasks import BackgroundTasks


async def tidying(begun: asyncio.Event, seen: list[str]) -> str:
    """Work that needs several waits to come to its end."""
    try:
        begun.set()
        await asyncio.Event().wait()
    finally:
        for word in ("kill", "read the rest", "reap"):
            await asyncio.sleep(0)
            seen.append(word)
    return "never"


async def cancelled_by_scope(tasks: BackgroundTasks | None) -> list[str]:
    begun, seen = asyncio.Event(), list[str]()
    with anyio.CancelScope() as scope:

        async def cancel() -> None:
            await begun.wait()
            scope.cancel()

        stopping = asyncio.create_task(cancel())
        work = tidying(begun, seen)
        await (work if tasks is None else tasks.run(work))
    await stopping
    if tasks is not None:
        await tasks.close()
    return seen


async def test_work_cancelled_by_a_scope_finishes_its_cleanup() -> None:
    assert await cancelled_by_scope(BackgroundTasks()) == ["kill", "read the rest", "reap"]


async def test_without_background_tasks_cancelled_cleanup_stops_at_its_first_wait() -> None:
    assert await cancelled_by_scope(None) == []


async def test_closing_waits_for_running_tasks() -> None:
    tasks, begun, seen = BackgroundTasks(), asyncio.Event(), list[str]()
    task = tasks.start(tidying(begun, seen))
    await begun.wait()
    await tasks.close()
    assert seen == ["kill", "read the rest", "reap"]
    assert task.cancelled()


@pytest.mark.parametrize("waits", range(4))
async def test_closing_lets_cancelled_work_finish_its_cleanup(waits: int) -> None:
    tasks, begun, seen = BackgroundTasks(), asyncio.Event(), list[str]()
    waiting = asyncio.create_task(tasks.run(tidying(begun, seen)))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    for _ in range(waits):
        await asyncio.sleep(0)
    await tasks.close()
    assert seen == ["kill", "read the rest", "reap"]


async def test_an_error_is_raised_in_the_waiter() -> None:
    async def fail() -> None:
        raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        await BackgroundTasks().run(fail())
