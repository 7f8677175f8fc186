"""Programs as models that never end, flood, or leave children behind."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from rlm.clients.command import CommandClient
from rlm.errors import ConfigError, ModelError
from tests.clients.misbehaving import asked
from tests.clients.programs import failure, program, replied
from tests.processes import is_running

FOREVER = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code])
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}")
time.sleep(600)
"""


def gone(number: int) -> bool:
    """Whether a process ends, which may take the system a moment after it was killed."""
    for _ in range(200):
        if not is_running(number):
            return True
        time.sleep(0.05)
    return False


def pids_in(path: Path) -> list[int]:
    """The numbers of both processes, once they run."""
    while not path.exists() or len(path.read_text().split()) < 2:
        time.sleep(0.02)
    return [int(each) for each in path.read_text().split()]


async def test_cancelling_ends_a_hanging_program_and_its_children(tmp_path: Path) -> None:
    path, pids = program(tmp_path, "forever", FOREVER), tmp_path / "pids"
    client = CommandClient([str(path), str(pids)])
    waiting = asyncio.create_task(client.complete(asked("hi"), timeout_seconds=600))
    numbers = await asyncio.to_thread(pids_in, pids)
    assert all(map(is_running, numbers))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert all(gone(each) for each in numbers)
    await client.close()


async def test_a_program_is_ended_at_its_time_limit(tmp_path: Path) -> None:
    path, pids = program(tmp_path, "forever", FOREVER), tmp_path / "pids"
    error = await failure([str(path), str(pids)], seconds=3.0)
    assert "did not answer within 3 s" in str(error)
    assert (error.retryable, error.ambiguous) == (True, True)
    if pids.exists():
        assert all(gone(int(each)) for each in pids.read_text().split())


async def test_a_child_that_keeps_the_output_open_is_not_awaited(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    path = program(
        tmp_path,
        "leaves",
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(str(child.pid))\nprint('four', flush=True)",
    )
    assert (await replied([str(path)])).text == "four"
    assert gone(int(pids.read_text()))


async def test_a_child_that_keeps_printing_is_not_awaited(tmp_path: Path) -> None:
    noise = "import sys\nwhile True: sys.stderr.write('noise ' * 10_000)"
    path = program(
        tmp_path,
        "floods",
        f"subprocess.Popen([sys.executable, '-c', {noise!r}]); print('four', flush=True)",
    )
    assert (await replied([str(path)], seconds=600.0)).text == "four"


async def test_endless_output_is_cut_and_the_program_ended(tmp_path: Path) -> None:
    path = program(tmp_path, "flood", "while True: print('flood ' * 1000)")
    reply = await replied([str(path)], asked("hi", max_output_tokens=100))
    assert reply.finish_reason == "length"
    assert len(reply.text) <= 400


async def test_endless_json_output_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlm.clients.command.MAX_JSON_BYTES", 100_000)
    path = program(tmp_path, "codex", "while True: print('{}' * 1000)")
    error = await failure(f"{path} exec --json")
    assert "wrote more than 100,000 bytes" in str(error)
    assert not error.retryable


async def test_much_error_output_while_the_prompt_is_unread_does_not_deadlock(
    tmp_path: Path,
) -> None:
    """Neither side waits for the other: a large prompt, and more than a pipe holds of each."""
    path = program(
        tmp_path,
        "noisy",
        "sys.stderr.write('noise ' * 500_000); print('x' * 300_000); print(len(read()))",
    )
    reply = await replied([str(path)], asked("p" * 2_000_000, max_output_tokens=200_000))
    assert reply.text.endswith("\n2000000")


async def test_a_program_that_reads_nothing_may_still_answer(tmp_path: Path) -> None:
    path = program(tmp_path, "deaf", "os.close(0); print('four')")
    assert (await replied([str(path)], asked("p" * 1_000_000))).text == "four"


async def test_the_number_of_concurrent_programs_is_limited(tmp_path: Path) -> None:
    path = program(
        tmp_path,
        "counted",
        "name = os.path.join(sys.argv[1], str(os.getpid())); open(name, 'w').close()\n"
        "print(len(os.listdir(sys.argv[1]))); time.sleep(0.2); os.remove(name)",
    )
    folder = tmp_path / "running"
    folder.mkdir()
    client = CommandClient([str(path), str(folder)], at_once=2)
    replies = await asyncio.gather(
        *(client.complete(asked("hi"), timeout_seconds=60) for _ in range(8))
    )
    await client.close()
    assert max(int(each.text) for each in replies) == 2
    with pytest.raises(ConfigError, match="at_once"):
        CommandClient("cat", at_once=0)


async def test_closing_ends_running_programs(tmp_path: Path) -> None:
    path, pids = program(tmp_path, "forever", FOREVER), tmp_path / "pids"
    client = CommandClient([str(path), str(pids)])
    waiting = asyncio.create_task(client.complete(asked("hi"), timeout_seconds=600))
    numbers = await asyncio.to_thread(pids_in, pids)
    await client.close()
    with pytest.raises(ModelError, match="was stopped"):
        await waiting
    assert all(gone(each) for each in numbers)


def test_no_program_outlives_its_caller(tmp_path: Path) -> None:
    import subprocess
    import sys

    path, pids = program(tmp_path, "forever", FOREVER), tmp_path / "pids"
    code = (
        "import os, sys, threading, time\n"
        "from rlm import RLM\n"
        f"one = RLM('command/{path} {pids}', strategy='direct')\n"
        "threading.Thread(target=one.ask, args=('?',), daemon=True).start()\n"
        f"while not os.path.exists({str(pids)!r}) or len(open({str(pids)!r}).read().split()) < 2:\n"
        "    time.sleep(0.05)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env={**os.environ})
    assert all(gone(int(each)) for each in pids.read_text().split())
