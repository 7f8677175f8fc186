"""How a cell is stopped: what counts is the time its worker has had, not that of the machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rlm.environments import _clock
from rlm.environments._clock import CellStopper, ProcessState
from rlm.environments._forked import WorkerHandle
from rlm.environments.local import LocalEnvironment
from rlm.worker.sandbox import process_state
from tests.environments.conftest import FakeHost, Repl
from tests.processes import descendants

if TYPE_CHECKING:
    from collections.abc import Callable

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
KINDS = {
    "everything": (),
    "no namespaces": ("namespaces",),
    "sealed": ("namespaces", "landlock"),
}


class Worker:
    """A worker whose looks are counted; `fares` says what each of them shows."""

    def __init__(self, fares: Callable[[int], ProcessState | None]) -> None:
        self.fares = fares
        self.looks = 0
        self.interrupts = 0
        self.arrives = asyncio.Event()
        self.arrives.set()

    def interrupt(self) -> None:
        self.interrupts += 1

    async def signals_sent(self) -> None:
        await self.arrives.wait()

    async def state(self) -> ProcessState | None:
        self.looks += 1
        return self.fares(self.looks)

    async def after(self, looks: int) -> None:
        """Wait until it has been looked at that many times more."""
        end = self.looks + looks
        while self.looks < end:
            await asyncio.sleep(0.001)


STARVED = ProcessState(1.0, asleep=False)


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_clock, "_GRACE_SECONDS", 0.004)


async def until_given_up(worker: Worker, progress: Callable[[], int] = lambda: 0) -> str:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stopper = CellStopper(worker, progress, told.set_result)
    stopper.time_is_up()
    how = await told
    stopper.stop()
    return how


@pytest.mark.parametrize(
    "fares",
    [
        lambda n: ProcessState(n, asleep=False),
        lambda n: ProcessState(1.0, asleep=True),
        lambda n: None,
    ],
    ids=["busy", "asleep", "unknown"],
)
async def test_a_worker_that_had_processor_time_is_interrupted_three_times(
    fares: Callable[[int], ProcessState | None],
) -> None:
    worker = Worker(fares)
    assert await until_given_up(worker) == "ignored 3 interrupts"
    assert worker.interrupts == 3
    assert worker.looks == 3 * (1 + _clock._LOOKS)


async def test_a_worker_without_processor_time_is_waited_for() -> None:
    worker = Worker(lambda _: STARVED)
    ended = asyncio.create_task(until_given_up(worker))
    await worker.after(looks=20 * _clock._LOOKS)
    assert worker.interrupts == 1
    worker.fares = lambda n: ProcessState(n, asleep=False)  # It gets one, and does not stop.
    assert await ended == "ignored 3 interrupts"
    assert worker.interrupts == 3


async def test_no_interrupt_is_sent_before_the_previous_one_arrived() -> None:
    worker = Worker(lambda _: None)
    worker.arrives.clear()
    ended = asyncio.create_task(until_given_up(worker))
    await asyncio.sleep(20 * _clock._GRACE_SECONDS)
    assert (worker.interrupts, worker.looks) == (1, 0)
    worker.arrives.set()
    await ended
    assert worker.interrupts == 3


async def test_a_worker_whose_answer_is_still_arriving_is_waited_for() -> None:
    received = 0

    def fares(_: int) -> ProcessState:
        nonlocal received
        received += coming
        return ProcessState(1.0, asleep=True)  # It waits until its output is read.

    coming, worker = 1, Worker(fares)
    ended = asyncio.create_task(until_given_up(worker, lambda: received))
    await worker.after(looks=20 * _clock._LOOKS)
    assert worker.interrupts == 1
    coming = 0
    await ended
    assert worker.interrupts == 3


@pytest.mark.parametrize("lie", [lambda: 0, iter(range(10**9)).__next__], ids=["nothing", "more"])
async def test_no_behaviour_of_a_worker_extends_the_stopping_limit(
    lie: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_clock, "_STOPPING_SECONDS", 0.05)
    worker = Worker(lambda _: STARVED)
    how = await until_given_up(worker, lie)
    assert how == "did not stop within 0.05 s of the first interrupt"
    assert worker.interrupts == 1


async def test_an_interrupt_by_the_caller_is_repeated_once_and_never_kills() -> None:
    worker, given_up = Worker(lambda _: None), list[str]()
    stopper = CellStopper(worker, lambda: 0, given_up.append)
    stopper.interrupt()
    assert worker.interrupts == 1
    await worker.after(looks=1 + _clock._LOOKS)
    await asyncio.sleep(20 * _clock._GRACE_SECONDS)
    assert (worker.interrupts, given_up) == (2, [])
    assert not stopper.time_was_up
    stopper.stop()


async def test_no_interrupt_is_sent_after_the_end_of_a_cell() -> None:
    worker, given_up = Worker(lambda _: None), list[str]()
    stopper = CellStopper(worker, lambda: 0, given_up.append)
    stopper.time_is_up()
    await worker.after(looks=2)
    stopper.stop()
    await asyncio.sleep(20 * _clock._GRACE_SECONDS)
    assert (worker.interrupts, given_up, stopper.time_was_up) == (1, [], True)


# -- real workers ----------------------------------------------------------------------------------


@pytest.fixture
async def opened(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """Opens REPLs; with them come the ids of the zygote and of the worker."""
    environments: list[LocalEnvironment] = []

    async def open_one(**options: Any) -> tuple[Repl, int, int]:
        # A size that no other test uses, so that no other test shares this zygote.
        size = (32 << 20) + len(environments) + os.getpid() % 4096
        before = descendants(os.getpid())
        environment = LocalEnvironment(scratch_bytes=size, warm_sessions=0, **options)
        environments.append(environment)
        host = FakeHost()
        repl = Repl(await environment.open(host, {}), host)
        worker = own_id(await repl.show("import os; os.getpid()"), before)
        return repl, parent_of(worker), worker

    yield open_one
    for environment in environments:
        await environment.close()


def own_id(inner: str, before: set[int]) -> int:
    """Return the id, outside its namespace, of a process with a PID namespace of its own."""
    for pid in descendants(os.getpid()) - before:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("NSpid:") and line.split()[-1] == inner.strip():
                    return pid
    raise LookupError(f"no process {inner}")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@needs_proc
async def test_interrupts_that_the_zygote_has_not_sent_kill_nothing(opened: Any) -> None:
    repl, zygote, _ = await opened()
    await repl.run("kept = [1]")
    cell = asyncio.create_task(repl.run("while True: pass", timeout_seconds=0.01))
    os.kill(zygote, signal.SIGSTOP)
    try:
        await asyncio.sleep(50 * _clock._GRACE_SECONDS)
        assert not cell.done()
    finally:
        os.kill(zygote, signal.SIGCONT)
    assert (await cell).interrupted
    assert await repl.show("kept") == "[1]"


@needs_proc
@pytest.mark.parametrize("without", KINDS.values(), ids=KINDS)
async def test_a_suspended_worker_is_continued_and_keeps_its_variables(
    opened: Any, without: tuple[str, ...]
) -> None:
    repl, _, _ = await opened(without=without)
    await repl.run("import os\nkept = [1]")
    stopped = await repl.run("os.kill(os.getpid(), 19)", timeout_seconds=0.05)
    assert stopped.interrupted
    assert await repl.show("kept") == "[1]"


async def test_a_worker_that_suspends_itself_after_an_interrupt_is_continued(opened: Any) -> None:
    repl, _, _ = await opened()
    late = "import os, time\nkept = [1]\ntry: time.sleep(60)\nfinally: os.kill(os.getpid(), 19)"
    stopped = await repl.run(late, timeout_seconds=0.05)
    assert stopped.interrupted
    assert await repl.show("kept") == "[1]"


@contextlib.contextmanager
def crowd(count: int, core: int) -> Generator[None, None, None]:
    """Others who keep one core busy."""
    program = f"import os\nos.sched_setaffinity(0, [{core}])\nprint(flush=True)\nwhile True: pass"
    started = [
        subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE)
        for _ in range(count)
    ]
    try:
        for each in started:
            assert each.stdout is not None
            each.stdout.readline()
        yield
    finally:
        for each in started:
            each.kill()
            each.communicate()


SLOW_TO_STOP = """
try:
    llm_query('here')
    while True: pass
finally:
    began = time.process_time()
    while time.process_time() < began + 0.6: pass
    tidied = True
"""


@needs_proc
async def test_a_starved_worker_has_time_for_its_cleanup(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `finally` takes half a second of processor time, for which it waits many seconds."""
    monkeypatch.setattr(_clock, "_GRACE_SECONDS", 1.0)
    repl, _, worker = await opened()
    await repl.run("import time\nkept = [1]")
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(worker, [core])
    with crowd(8, core):
        cell = asyncio.create_task(repl.run(SLOW_TO_STOP, timeout_seconds=600))
        await repl.host.was_asked.wait()
        await repl.session.interrupt()
        assert (await cell).interrupted
    assert await repl.show("kept, tidied") == "([1], True)"


@needs_proc
@pytest.mark.parametrize(
    "without",
    [
        pytest.param(kind, id=name, marks=[pytest.mark.heavy] * bool(kind))
        for name, kind in KINDS.items()
    ],
)
async def test_the_zygote_reports_the_state_of_a_worker(
    opened: Any, without: tuple[str, ...]
) -> None:
    repl, _, worker = await opened(without=without)
    handle: WorkerHandle = repl.session._handle

    async def until(*, asleep: bool) -> ProcessState:
        """Look until it is asleep or not."""
        while True:
            seen = await handle.state()
            assert seen is not None
            if seen.asleep == asleep:
                return seen

    await repl.run("import time\nwhile time.process_time() < 0.2: pass")
    seen = await until(asleep=True)  # It has answered, and waits for the next cell.
    assert seen.cpu_seconds >= 0.19
    cell = asyncio.create_task(repl.run("while True: pass"))
    await until(asleep=False)
    os.kill(worker, signal.SIGSTOP)
    await until(asleep=True)  # A stopped process had its time, too.
    os.kill(worker, signal.SIGCONT)
    await until(asleep=False)
    await repl.session.interrupt()
    assert (await cell).interrupted


@needs_proc
def test_the_state_of_a_missing_process_is_unknown() -> None:
    assert process_state.of_group(None, 1) is None
    assert process_state.of_processes([2**22 + 1]) is None
    folder = os.open("/proc", os.O_RDONLY)
    try:
        assert process_state.of_group(folder, 2**22 + 1) is None
    finally:
        os.close(folder)
    own = process_state.of_processes([os.getpid()])
    assert own is not None
    assert not own["asleep"]
