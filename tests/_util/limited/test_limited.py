"""Jobs in processes with limits: what comes back, what is stopped, and that nothing is left."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm._util.limited import JobLimits, Jobs, JobStopped, _jobs, owner
from tests.processes import descendants, is_running

MODULE = "tests._util.limited.sample_jobs"
ROOT = Path(__file__).resolve().parents[3]
AUTOGROUP = Path("/proc/self/autogroup")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


def jobs_with(seconds: float = 60.0, *, at_once: int = 4, **limits: int) -> Jobs:
    return Jobs(MODULE, JobLimits(seconds=seconds, **limits), at_once=at_once)


@pytest.fixture(params=[pytest.param("forked", marks=LINUX), "spawned"])
def jobs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setattr(_jobs, "FORKS", request.param == "forked")
    one = jobs_with(memory_bytes=256 << 20, output_bytes=1 << 20)
    yield one
    one.close()


@pytest.fixture
def forked() -> Iterator[Jobs]:
    one = jobs_with()
    yield one
    one.close()


def stopped(jobs: Jobs, function: str, *arguments: Any, seconds: float = 60.0) -> JobStopped:
    with pytest.raises(JobStopped) as caught:
        jobs.call(function, *arguments, limits=replace(jobs.limits, seconds=seconds))
    return caught.value


def processes_of(jobs: Jobs) -> set[int]:
    """The fork server's children."""
    return set() if jobs._server is None else descendants(jobs._server._process.pid)


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(60):
        while is_running(pid):
            await asyncio.sleep(0.01)


# -- results --------------------------------------------------------------------------------------

VALUES: list[Any] = [
    None,
    True,
    10**40,
    0.1,
    "é\ud800\0",
    "",
    [],
    {"a": [1, {"b": None}]},
    "x" * 300_000,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_values_are_returned_unchanged(jobs: Jobs, value: Any) -> None:
    assert jobs.call("echo", value) == value


async def test_async_calls_return_the_same_values(jobs: Jobs) -> None:
    assert await asyncio.gather(*(jobs.acall("echo", n) for n in range(12))) == [*range(12)]
    assert await jobs.acollect("count", 5) == ([0, 1, 2, 3, 4], None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
SHARED = jobs_with()


@settings(max_examples=15)
@given(JSON)
def test_any_json_value_is_returned_unchanged(value: Any) -> None:
    assert SHARED.call("echo", value) == value


def test_each_job_has_its_own_process(jobs: Jobs) -> None:
    used = {jobs.call("process") for _ in range(5)}
    assert len(used) == 5
    assert os.getpid() not in used


# -- priority -------------------------------------------------------------------------------------


def test_jobs_have_a_lower_priority_than_the_host(jobs: Jobs) -> None:
    assert jobs.call("niceness") == min(19, os.nice(0) + 5)


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel has no autogroups")
def test_their_session_has_a_lower_priority_too(forked: Jobs) -> None:
    before = AUTOGROUP.read_text()
    assert forked.call("session_priority").endswith("nice 5\n")
    assert AUTOGROUP.read_text() == before


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["spin", "sleep"])
def test_time_is_limited(jobs: Jobs, function: str) -> None:
    assert stopped(jobs, function, seconds=0.5).reason == "time"
    assert jobs.call("echo", 1) == 1


def test_processor_time_is_limited_even_if_the_host_does_not_check(forked: Jobs) -> None:
    job = _jobs._Job(forked, "spin", (), JobLimits(seconds=1.0))
    job._limits = JobLimits(seconds=600.0)  # limit on this side; the process itself has 1 s
    found = job.run()
    assert found.stopped is not None
    assert found.stopped.reason == "time"


def test_memory_is_limited(jobs: Jobs) -> None:
    assert stopped(jobs, "take_memory").reason == "memory"
    assert jobs.call("echo", 1) == 1


async def test_output_is_limited(jobs: Jobs) -> None:
    assert len(jobs.call("long_text", 1 << 20)) == 1 << 20
    assert stopped(jobs, "long_text", (1 << 20) + 1).reason == "output"
    found = await jobs.acollect("many", 10_000)
    assert found.stopped is not None
    assert found.stopped.reason == "output"
    assert 900 < len(found.items) < 1_100


@pytest.mark.parametrize(
    ("function", "words"),
    [("fail", "ValueError: this value is wrong"), ("die", "status -11"), ("leave", "status 3")],
)
def test_a_failing_job_says_why(jobs: Jobs, function: str, words: str) -> None:
    failure = stopped(jobs, function)
    assert failure.reason == "crash"
    assert words in str(failure)
    assert jobs.call("echo", 1) == 1


async def test_items_found_before_a_limit_are_kept(jobs: Jobs) -> None:
    found = await jobs.acollect("count_then_sleep", 3, limits=JobLimits(seconds=2.0))
    assert found.items == [0, 1, 2]
    assert found.stopped is not None
    assert found.stopped.reason == "time"


@LINUX
@pytest.mark.parametrize("what", ["network", "fork", "program", "kill", "write", "remove"])
def test_system_calls_no_job_needs_are_refused(forked: Jobs, tmp_path: Path, what: str) -> None:
    place = tmp_path / "file"
    place.write_text("as it was")
    assert forked.call("attempt", what, str(place)) == "PermissionError"
    assert place.read_text() == "as it was"


@LINUX
def test_a_job_inherits_no_variables_or_descriptors(
    forked: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    read_end, write_end = os.pipe()
    os.set_inheritable(read_end, True)
    os.set_inheritable(write_end, True)
    try:
        assert len(forked.call("descriptors")) == 5  # three streams, its own, the listing itself
        assert "SOME_API_KEY" not in forked.call("variables")
    finally:
        os.close(read_end)
        os.close(write_end)


# -- many at once ---------------------------------------------------------------------------------


@LINUX
async def test_the_number_of_concurrent_jobs_is_limited() -> None:
    jobs = jobs_with(at_once=2)
    running = [asyncio.create_task(jobs.acall("sleep")) for _ in range(5)]
    waiting = asyncio.create_task(jobs.acall("echo", 1))
    while len(processes_of(jobs)) < 2:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    assert not waiting.done()
    assert len(processes_of(jobs)) <= 2 + 1  # the busy ones, and one that is ready
    for task in running:
        task.cancel()
    assert await waiting == 1
    assert await asyncio.gather(*running, return_exceptions=True)
    jobs.close()


@LINUX
async def test_one_owner_cannot_use_all_slots() -> None:
    jobs = jobs_with(at_once=4)

    async def of(name: str, function: str, *arguments: Any) -> Any:
        owner.set(name)
        return await jobs.acall(function, *arguments)

    greedy = [asyncio.create_task(of("greedy", "sleep")) for _ in range(20)]
    await asyncio.sleep(0)
    assert await of("modest", "echo", 1) == 1
    assert not any(task.done() for task in greedy)
    for task in greedy:
        task.cancel()
    await asyncio.gather(*greedy, return_exceptions=True)
    assert await of("greedy", "echo", 2) == 2
    jobs.close()


@LINUX
def test_threads_and_loops_share_one_pool() -> None:
    jobs = jobs_with(at_once=3)
    found: list[int] = []

    def in_thread(number: int) -> None:
        found.append(jobs.call("echo", number))
        found.append(asyncio.run(jobs.acall("echo", number)))

    threads = [threading.Thread(target=in_thread, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == sorted([*range(8), *range(8)])
    jobs.close()


@LINUX
async def test_cancelling_loses_no_slots() -> None:
    jobs = jobs_with(at_once=2)
    for _ in range(10):
        tasks = [asyncio.create_task(jobs.acall("sleep")) for _ in range(6)]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert await asyncio.gather(*(jobs.acall("echo", n) for n in range(6))) == [*range(6)]
    jobs.close()


# -- the end --------------------------------------------------------------------------------------


@LINUX
async def test_cancelling_kills_the_process() -> None:
    jobs = Jobs(MODULE, JobLimits(seconds=600.0), ready=0)
    task = asyncio.create_task(jobs.acall("sleep"))
    while not (running := processes_of(jobs)):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for pid in running:
        await until_gone(pid)
    assert await jobs.acall("echo", 1) == 1
    jobs.close()


@LINUX
def test_a_closed_event_loop_ends_its_jobs(forked: Jobs) -> None:
    async def leave_one() -> None:
        asyncio.create_task(forked.acall("sleep"))  # noqa: RUF006 - forgotten on purpose
        assert await forked.acall("echo", 1) == 1

    asyncio.run(leave_one())
    assert asyncio.run(forked.acall("echo", 2)) == 2
    assert forked.call("echo", 3) == 3


@LINUX
def test_a_killed_fork_server_is_replaced(forked: Jobs) -> None:
    assert forked.call("echo", 1) == 1
    assert forked._server is not None
    os.kill(forked._server._process.pid, signal.SIGKILL)
    forked._server._process.wait()
    assert forked.call("echo", 2) == 2


HOST = """
import sys
from rlm._util.limited import JobLimits, Jobs
jobs = Jobs("tests._util.limited.sample_jobs", JobLimits(seconds=600))
print(jobs.call("process"), flush=True)
jobs.call("sleep")
"""


@LINUX
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_dead_host_leaves_no_process(number: int) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", HOST],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert host.stdout is not None
    with host.stdout:
        host.stdout.readline()
        while len(below := descendants(host.pid)) < 2:
            time.sleep(0.01)
        host.send_signal(number)
        host.wait(60)
    for pid in below:
        asyncio.run(until_gone(pid))


@LINUX
def test_a_forked_host_starts_its_own_processes(forked: Jobs) -> None:
    assert forked.call("echo", 1) == 1
    ours = forked._server
    child = os.fork()
    if child == 0:
        right = forked.call("echo", 2) == 2 and forked._server is not ours
        forked.close()
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert forked.call("echo", 3) == 3
    assert forked._server is ours


def test_a_late_preparation_starts_nothing_after_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may run the thread of `prepare` only after `close`."""
    late: list[Any] = []

    class LateThread:
        def __init__(self, target: Any, **_: Any) -> None:
            late.append(target)

        def start(self) -> None:
            """Do nothing yet."""

    jobs = Jobs("tests._util.limited.sample_jobs")
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", LateThread)
        jobs.prepare()
    jobs.close()
    (fill,) = late
    fill()
    assert jobs._server is None
    jobs.prepare()
    assert jobs.call("echo", 1) == 1
    jobs.close()
