"""Objects in processes with limits: kept between calls, and recreated after their process ended."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from rlm._util.limited import JobLimits, Jobs, JobStopped, LimitedObject, _jobs, _objects
from tests._util.limited.test_limited import LINUX, until_gone

MODULE = "tests._util.limited.sample_jobs"


@pytest.fixture(params=[pytest.param("forked", marks=LINUX), "spawned"])
def jobs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setattr(_jobs, "FORKS", request.param == "forked")
    one = Jobs(MODULE, JobLimits(60.0, 256 << 20, 1 << 20))
    yield one
    one.close()


def test_an_object_persists_between_calls(jobs: Jobs) -> None:
    counter = LimitedObject(jobs, "counter", 10)
    first, second = counter.call("add", 1), counter.call("add", 2)
    assert (first[0], second[0]) == (11, 13)
    assert first[1] == second[1]
    counter.close()
    again = counter.call("add", 1)
    assert again[0] == 11
    assert again[1] != first[1]
    counter.close()


@pytest.mark.parametrize(
    ("method", "reason"),
    [("sleep", "time"), ("fill", "memory"), ("talk", "output"), ("fail", "crash")],
)
async def test_a_call_that_exceeds_a_limit_ends_the_process_and_the_next_restarts_it(
    jobs: Jobs, method: str, reason: str
) -> None:
    counter = LimitedObject(jobs, "counter", 0)
    _, pid = await counter.acall("add", 1)
    with pytest.raises(JobStopped) as caught:
        await counter.acall(method, seconds=0.5 if method == "sleep" else 60.0)
    assert caught.value.reason == reason
    await until_gone(pid)
    assert (await counter.acall("add", 5))[0] == 5
    counter.close()


async def test_concurrent_calls_run_one_after_the_other(jobs: Jobs) -> None:
    counter = LimitedObject(jobs, "counter", 0)
    found = await asyncio.gather(*(counter.acall("add", 1) for _ in range(20)))
    assert sorted(count for count, _ in found) == list(range(1, 21))
    assert len({pid for _, pid in found}) == 1
    counter.close()


async def test_cancelling_a_call_ends_the_process_but_no_other_call(jobs: Jobs) -> None:
    counter = LimitedObject(jobs, "counter", 0)
    _, pid = await counter.acall("add", 1)
    sleeping = asyncio.create_task(counter.acall("sleep"))
    waiting = asyncio.create_task(counter.acall("add", 2))
    await asyncio.sleep(0.05)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert (await waiting)[0] == 2
    await until_gone(pid)
    counter.close()


async def test_a_garbage_collected_object_ends_its_process(jobs: Jobs) -> None:
    counter = LimitedObject(jobs, "counter", 0)
    _, pid = await counter.acall("add", 1)
    del counter
    gc.collect()
    await until_gone(pid)


async def test_an_idle_process_ends(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_objects, "IDLE_SECONDS", 0.05)
    counter = LimitedObject(jobs, "counter", 0)
    _, pid = await counter.acall("add", 1)
    await until_gone(pid)
    assert (await counter.acall("add", 3))[0] == 3
    counter.close()
