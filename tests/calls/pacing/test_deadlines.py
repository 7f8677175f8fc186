"""One timer for many deadlines, and a time limit that does not swallow cancellations."""

import asyncio

import pytest

from rlm.calls.pacing import Deadlines, TimeLimit
from tests.virtual_time import now, run


def new_deadlines() -> Deadlines:
    return Deadlines(asyncio.get_running_loop().time)


def test_each_one_ends_at_its_own_time() -> None:
    async def one(deadlines: Deadlines, deadline: float) -> float:
        with pytest.raises(TimeoutError), TimeLimit(deadlines, deadline):
            await asyncio.sleep(1_000)
        return now()

    async def main() -> list[float]:
        deadlines = new_deadlines()
        return await asyncio.gather(*(one(deadlines, each) for each in (30.0, 10.0, 20.0, 10.0)))

    assert run(main()) == pytest.approx([30.0, 10.0, 20.0, 10.0])


def test_what_is_over_before_is_left_alone() -> None:
    async def main() -> None:
        deadlines = new_deadlines()
        with TimeLimit(deadlines, 10.0):
            await asyncio.sleep(5)
        await asyncio.sleep(100)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(main())


def test_an_error_of_its_own_stays_what_it_is() -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError), TimeLimit(new_deadlines(), 10.0):
            raise ZeroDivisionError

    run(main())


def test_a_body_that_answers_a_cancellation_with_an_error_leaves_no_cancellation_behind() -> None:
    async def body() -> None:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            raise ValueError("cut short") from None

    async def main() -> None:
        with pytest.raises(ValueError, match="cut short"), TimeLimit(new_deadlines(), 10.0):
            await body()
        await asyncio.sleep(1)  # would raise if the cancellation still counted

    run(main())


def test_a_cancellation_by_somebody_else_stays_one() -> None:
    async def body(deadlines: Deadlines) -> None:
        with TimeLimit(deadlines, 10.0):
            await asyncio.sleep(1_000)

    async def main() -> None:
        deadlines = new_deadlines()
        early = asyncio.create_task(body(deadlines))
        both = asyncio.create_task(body(deadlines))
        await asyncio.sleep(5)
        early.cancel()
        asyncio.get_running_loop().call_at(10.0, both.cancel)  # in the moment of the deadline
        done, _ = await asyncio.wait([early, both])
        assert all(task.cancelled() for task in done)

    run(main())
