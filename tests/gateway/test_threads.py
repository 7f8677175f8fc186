"""Slots by owner, and threads that stay reserved until their work ends."""

import asyncio
import threading

import pytest

from rlm.gateway.tasks import MAX_THREADS_EACH, OwnerLimits, Threads


async def test_an_owner_at_its_limit_does_not_delay_others() -> None:
    limits, leave = OwnerLimits(2), asyncio.Event()
    inside: list[str] = []

    async def work(owner: str) -> None:
        async with limits.slot(owner):
            inside.append(owner)
            await leave.wait()

    tasks = [asyncio.create_task(work(owner)) for owner in ("ada", "ada", "ada", "ben")]
    for _ in range(5):
        await asyncio.sleep(0)
    assert inside == ["ada", "ada", "ben"]
    leave.set()
    await asyncio.gather(*tasks)
    assert inside == ["ada", "ada", "ben", "ada"]
    assert not limits._places


async def test_a_cancelled_request_keeps_its_thread_until_the_work_ends() -> None:
    threads, leave = Threads(), threading.Event()
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        leave.wait()
        return number

    try:
        for number in range(3 * MAX_THREADS_EACH):
            asking = asyncio.create_task(threads.run("ada", work, number))
            while len(begun) < min(number + 1, MAX_THREADS_EACH):
                await asyncio.sleep(0.001)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert len(begun) == MAX_THREADS_EACH
        ben = asyncio.create_task(threads.run("ben", work, 99))
        while 99 not in begun:
            await asyncio.sleep(0.001)
        leave.set()
        assert await ben == 99
    finally:
        leave.set()
        await threads.close()


async def test_an_error_in_a_thread_is_raised() -> None:
    threads = Threads()
    try:
        with pytest.raises(ZeroDivisionError):
            await threads.run("ada", lambda: 1 // 0)
    finally:
        await threads.close()
