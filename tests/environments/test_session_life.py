"""Time-outs, interrupts, hostile frames and every way a worker can die."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rlm.environments import _calls, _clock, local
from rlm.environments.local import LocalEnvironment, zygotes
from rlm.errors import ProtocolViolation, SessionDied, SessionError
from rlm.results import CellResult
from tests.environments.conftest import out_of_time
from tests.processes import descendants, is_running

if TYPE_CHECKING:
    from tests.environments.conftest import Opener, Repl

FIND_SOCKET = """
import os, stat
def is_socket(fd):
    try: return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError: return False
fd = next(filter(is_socket, range(3, 50)))
"""

HANGS = [
    "while True: pass",
    "import time; time.sleep(1000)",
    "import threading; l = threading.Lock(); l.acquire(); l.acquire()",
    "import asyncio\nawait asyncio.sleep(1000)",
    "import asyncio\nasync def m(): await asyncio.sleep(1000)\nasyncio.run(m())",
    "while True:\n    try: x = 1\n    except Exception: pass",
    "sum(i for i in iter(int, 1))",
    "class B:\n    def __str__(self): time.sleep(1000)\nanswer.update(content=B(), ready=True)",
]


async def test_a_cell_that_takes_too_long_is_interrupted_and_keeps_its_variables(
    repl: Repl,
) -> None:
    await repl.run("import asyncio, threading, time\nkept = [1]")
    for code in HANGS:
        result = await repl.run(code, timeout_seconds=0.1)
        assert result.interrupted, code
        assert result.error is not None
        assert (result.error.type, result.error.message) == (
            "TimeoutError",
            "cell stopped after 0.1 s",
        )
        assert await repl.show("answer = {}; kept") == "[1]"


async def stopped(repl: Repl, code: str) -> CellResult:
    """Interrupt a cell once it has called a model, which is the last thing before it hangs."""
    repl.host.was_asked.clear()
    cell = asyncio.create_task(repl.run(code, timeout_seconds=600))
    await repl.host.was_asked.wait()
    await repl.session.interrupt()
    return await cell


async def test_output_before_the_interrupt_is_kept(repl: Repl) -> None:
    endless = "llm_query('here'); any(False for _ in iter(int, 1))"
    result = await stopped(repl, f"print('before')\n{endless}")
    assert result.interrupted
    assert result.stdout == "before\n"
    assert result.error is not None
    assert endless in result.error.traceback


async def test_an_interrupt_reaches_a_cell_waiting_for_a_call(repl: Repl) -> None:
    repl.host.hold_until = 10
    for code in ("llm_query('slow')", "await llm_query('slow')"):
        cell = asyncio.create_task(repl.run(code))
        await repl.host.was_asked.wait()
        await repl.session.interrupt()
        result = await cell
        assert result.interrupted
        assert result.error is not None
        assert result.error.type == "KeyboardInterrupt"
        repl.host.was_asked.clear()
    repl.host.hold_until = 0
    assert await repl.show("llm_query('next')") == "'re:next'"


async def test_the_event_loop_survives_an_interrupt(repl: Repl) -> None:
    await repl.run("import asyncio\ntask = None")
    await repl.run("await asyncio.sleep(0); task = asyncio.create_task(asyncio.sleep(1, 'kept'))")
    waiting = await stopped(repl, "await llm_query('here'); await asyncio.sleep(1000)")
    assert waiting.interrupted  # in the cell, or in the event loop's own code
    endless = "llm_query('here'); any(False for _ in iter(int, 1))"
    busy = await stopped(repl, f"await asyncio.sleep(0)\n{endless}")
    assert busy.interrupted
    assert busy.error is not None
    assert endless in busy.error.traceback
    assert await repl.show("await task") == "'kept'"


async def test_an_interrupt_between_cells_does_nothing(repl: Repl) -> None:
    for _ in range(5):
        await repl.session.interrupt()
        assert await repl.show("1") == "1"


async def test_interrupts_never_corrupt_a_frame(repl: Repl) -> None:
    """Interrupt a busy caller at many moments; every reply must still find its question."""
    await repl.run("i = wrong = interrupted = 0")
    code = (
        "while i < 400:\n"
        "    try:\n"
        "        while i < 400:\n"
        "            i += 1\n"
        "            prompt = 'x' * 5000 + str(i)\n"
        "            wrong += llm_query(prompt) != 're:' + prompt\n"
        "    except KeyboardInterrupt: interrupted += 1"
    )
    cell = asyncio.create_task(repl.run(code))
    await repl.host.was_asked.wait()
    while not cell.done():
        await repl.session.interrupt()
        await asyncio.sleep(0.004)
    assert (await cell).interrupted
    assert await repl.show("wrong, llm_query('after')") == "(0, 're:after')"


async def test_the_clock_stops_while_calls_are_in_flight(repl: Repl) -> None:
    clock = vars(repl.session)["_clock"]
    repl.host.hold_until = 2
    cell = asyncio.create_task(repl.run("llm_query('a')", timeout_seconds=60))
    await repl.host.was_asked.wait()
    assert len(clock._waiting) == 1
    repl.host.release.set()
    result = await cell
    assert result.error is None
    assert not result.interrupted


@pytest.mark.parametrize(
    "call",
    [
        "budget()",
        "llm_query('refuse')",
        "llm_query('cached')",
        "llm_query_batched([])",
        "lookup(1)",
        "broken()",
    ],
)
async def test_calls_that_take_no_time_do_not_stop_the_clock(repl: Repl, call: str) -> None:
    """It ends by the clock, long before it has made that many calls."""
    code = (
        "count = 0\n"
        "while count < 300_000:\n"
        "    count += 1\n"
        f"    try: {call}\n"
        "    except Exception: pass"
    )
    result = await repl.run(code, timeout_seconds=0.5)
    assert result.error is not None
    assert result.error.type == "TimeoutError", result.error
    assert await repl.show("count < 300_000") == "True"


FORGED_FREE_CALLS = """
import os, select, socket, struct, time
def frame(number):
    parts = (b'budget', b'{}')
    body = struct.pack('<BIIII', 35, number, 2, *map(len, parts)) + b''.join(parts)
    return struct.pack('<I', len(body)) + body
line, *_ = [socket.socket(fileno=os.dup(n)) for n in range(3, 9) if is_socket(n)]
def drop_answers():
    # Whole frames only: a worker that is out of step with the host ends at once.
    while select.select([line], [], [], 0)[0]:
        head = line.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL)
        line.recv(4 + struct.unpack('<I', head)[0], socket.MSG_WAITALL)
end, number, batches = time.monotonic() + 60, 10**6, 0
while time.monotonic() < end:
    batches += 1
    line.sendall(b''.join(frame(number + each) for each in range(50)))
    number += 50
    drop_answers()
"""
"""The host always has the next call before it has answered the last one."""


async def test_forged_free_calls_do_not_stop_the_clock(repl: Repl) -> None:
    await repl.run(
        "import os, stat\n"
        "def is_socket(number):\n"
        "    try: return stat.S_ISSOCK(os.fstat(number).st_mode)\n"
        "    except OSError: return False"
    )
    result = await repl.run(FORGED_FREE_CALLS, timeout_seconds=0.5)
    assert result.error is not None
    assert result.error.type == "TimeoutError", result.error


async def test_a_loop_in_c_is_killed(repl: Repl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_clock, "_GRACE_SECONDS", 0.1)
    with pytest.raises(SessionDied, match="ignored 3 interrupts"):
        await out_of_time(repl, "sum(range(10**12))")
    with pytest.raises(SessionDied):
        await repl.run("1")


async def test_a_cell_that_swallows_interrupts_is_stopped_or_killed(
    repl: Repl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_clock, "_GRACE_SECONDS", 0.1)
    await repl.run("import time")
    busy = "any(False for _ in iter(int, 1))"
    result = await out_of_time(repl, f"try: {busy}\nexcept: print('caught')")
    assert result.stdout == "caught\n"
    assert result.error is not None
    assert result.error.type == "TimeoutError"
    twice = f"for _ in range(2):\n    try: {busy}\n    except BaseException: pass"
    assert (await out_of_time(repl, twice)).interrupted
    assert await repl.show("'alive'") == "'alive'"


DEATHS = [
    ("import os; os._exit(3)", "exited with status 3"),
    ("import os; os.kill(os.getpid(), 11)", "was killed by SIGSEGV"),
    ("import ctypes; ctypes.string_at(0)", "was killed by SIGSEGV"),
    ("import os; os.kill(os.getpid(), 40)", "was killed by signal 40"),
    (FIND_SOCKET + "os.close(fd)\nwhile True: pass", "was killed by SIGKILL"),
]


@pytest.mark.parametrize(("code", "how"), DEATHS)
async def test_the_error_says_how_a_worker_died(repl: Repl, code: str, how: str) -> None:
    with pytest.raises(SessionDied, match=how):
        await repl.run(code)
    for request in (repl.run("1"), repl.session.fetch("x"), repl.load("text")):
        with pytest.raises(SessionDied, match=how):
            await request


async def test_death_between_cells_is_noticed(repl: Repl) -> None:
    await repl.run("import threading, os\nthreading.Timer(0.05, os._exit, [9]).start()")
    await asyncio.sleep(0.3)
    with pytest.raises(SessionDied, match="status 9"):
        await repl.run("import time; time.sleep(20)")


FORGE = """
import struct
LLM = b'{"model": null, "batched": true}'
def forge(kind, id, *parts):
    table = struct.pack(f'<{len(parts)}I', *map(len, parts))
    body = struct.pack('<BII', kind, id, len(parts)) + table + b''.join(parts)
    os.write(fd, struct.pack('<I', len(body)) + body)
"""
HOSTILE = {
    "garbage": "os.write(fd, b'\\xff' * 100)",
    "another protocol": "os.write(fd, b'GET / HTTP/1.1\\r\\n\\r\\n')",
    "ready again": "forge(33, 0)",
    "a result of another cell": "forge(34, 99)",
    "a result without parts": "forge(34, 2)",
    "a result that is no JSON": "forge(34, 2, b'{', b'', b'')",
    "a result with wrong metadata": "forge(34, 2, b'{}', b'', b'')",
    "a call without parts": "forge(35, 1)",
    "a call of no known kind": "forge(35, 1, b'exec', b'{}')",
    "a call with wrong arguments": "forge(35, 1, b'llm', b'{}')",
    "a call that is not text": "forge(35, 1, b'llm', LLM, b'\\xff')",
    "a call without a prompt": "forge(35, 1, b'llm', LLM)",
    "the same call twice": "forge(35, 1, b'budget', b'{}'); forge(35, 1, b'budget', b'{}')",
}


@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE)
async def test_forged_frames_kill_the_session(repl: Repl, code: str) -> None:
    repl.host.hold_until = 10
    with pytest.raises(ProtocolViolation):
        await repl.run(FIND_SOCKET + FORGE + code + "\nimport time; time.sleep(20)")
    with pytest.raises(ProtocolViolation):
        await repl.run("1")


async def test_too_many_pending_calls_are_a_violation(
    repl: Repl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_calls, "_MAX_PENDING_CALLS", 50)
    repl.host.hold_until = 10_000
    with pytest.raises(ProtocolViolation, match="more than 50 calls"):
        await repl.run(
            "import asyncio\nawait asyncio.gather(*[llm_query('a') for _ in range(100)])"
        )


async def test_a_context_that_cannot_be_loaded_is_reported(repl: Repl) -> None:
    class Broken:
        kind = "json"
        size_bytes = 1

        def chunks(self, chunk_bytes: int) -> list[bytes]:
            return [b"{"]

    broken: Any = Broken()
    with pytest.raises(SessionError, match="context could not be loaded"):
        await repl.session.load("context", broken)
    assert await repl.show("1") == "1"


async def test_a_context_that_fails_halfway_ends_the_session(repl: Repl) -> None:
    class Vanishing:
        kind = "text"
        size_bytes = 2

        def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
            yield b"a"
            raise OSError("it vanished")

    vanishing: Any = Vanishing()
    with pytest.raises(OSError, match="vanished"):
        await repl.session.load("context", vanishing)
    with pytest.raises(SessionDied, match="could not be read to the end"):
        await repl.run("1")


async def test_cancelling_a_cell_ends_the_session(repl: Repl) -> None:
    cell = asyncio.create_task(repl.run("while True: pass"))
    await asyncio.sleep(0.1)
    cell.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cell
    with pytest.raises(SessionDied, match="cancelled"):
        await repl.run("1")


async def test_closing_ends_all_processes_and_leaks_no_descriptors(
    open_repl: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_REFILL_SECONDS", 0)
    zygotes.close_all()  # A zygote that is replaced meanwhile would come and go, too.
    gc.collect()
    others = descendants(os.getpid())
    warm_up = await open_repl()
    await warm_up.session.close()
    before = _open_fds()
    repl = await open_repl()
    repl.host.hold_until = 2
    with_it = descendants(os.getpid()) - others
    cell = asyncio.create_task(repl.run("llm_query('pending')"))
    await repl.host.was_asked.wait()
    async with asyncio.timeout(60):
        await asyncio.gather(repl.session.close(), repl.session.close())
    with pytest.raises(SessionDied, match="closed"):
        await cell
    assert repl.host.in_flight == 0
    # One that is kept ready took its place: as many processes, but another one.
    async with asyncio.timeout(60):
        while len(with_it - descendants(os.getpid())) != 1 or _open_fds() != before:
            await asyncio.sleep(0.01)
    gc.collect()


async def test_a_busy_worker_can_be_closed(open_repl: Opener) -> None:
    repl = await open_repl()
    cell = asyncio.create_task(repl.run("sum(range(10**12))"))
    await asyncio.sleep(0.1)
    async with asyncio.timeout(60):
        await repl.session.close()
    with pytest.raises(SessionDied):
        await cell


def test_the_worker_dies_with_its_host(tmp_path: Path) -> None:
    program = (
        "import asyncio\nfrom rlm.environments.local import LocalEnvironment\n"
        "async def main():\n"
        "    s = await LocalEnvironment().open(None, {})\n"
        "    print('ready', flush=True)\n"
        "    await s.execute('while True: pass', timeout_seconds=1000)\n"
        "asyncio.run(main())"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # A killed host can't tidy up.
    command = [sys.executable, "-c", program]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert host.stdout is not None
    host.stdout.readline()
    pids = descendants(host.pid)
    assert len(pids) >= 2
    host.send_signal(signal.SIGKILL)
    host.wait()
    host.stdout.close()
    deadline = time.monotonic() + 60
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(is_running, pids))


async def test_a_python_that_does_not_start() -> None:
    nobody: Any = None
    with pytest.raises(SessionDied, match="exited with status 1"):
        await LocalEnvironment(python="/bin/false").open(nobody, {})
    with pytest.raises(FileNotFoundError):
        await LocalEnvironment(python="/no/python").open(nobody, {})


def _open_fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
