"""Forks and threads by permission: real workers ask, and a script decides as the zygote would."""

import errno
from typing import Any

import pytest

from tests.worker.sandbox.runs import run_script

USERS = ("root", "stranger")
FORBIDDEN: dict[str, list[str]] = {
    "all layers": [],
    "no namespaces": ["namespaces"],
    "sealed": ["namespaces", "landlock"],
}

FORKER = """
import signal
from rlm_worker.sandbox import permits
while True:
    os.read(0, 1)
    try:
        child = permits.fork()
    except OSError as error:
        say(-error.errno)
        continue
    if child == 0:
        while True: signal.pause()
    say(child)
"""
"""For every `go()` it tries to fork once, and says the child's id or minus the error number."""

THREADS = """
import threading
threading.stack_size(1 << 18)
stop = threading.Event()
started, problem = [], ""
while len(started) < 100 and not problem:
    try:
        thread = threading.Thread(target=stop.wait, daemon=True)
        thread.start()
        started.append(thread)
    except RuntimeError as error:
        problem = str(error)
say([len(started), problem])
stop.set()
for thread in started: thread.join()
again = threading.Thread(target=len, args=([],))
again.start()
again.join()
say("again")
os.read(0, 1)
"""


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


MIDDLE = pytest.param("no namespaces", marks=pytest.mark.heavy)


@pytest.fixture(params=["all layers", MIDDLE, "sealed"])
def setting(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def scripted(user: str, script: str, setting: str = "all layers", **order: Any) -> Any:
    settings = {"forbid": FORBIDDEN[setting], **order.pop("settings", {})}
    source = f"FORKER, THREADS = {FORKER!r}, {THREADS!r}\n{script}"
    report, result = run_script(user, source, settings=settings, **order)
    if any(reason.startswith("permits: ") for reason in report["missing"]):
        pytest.skip("; ".join(report["missing"]))
    return result


# -- forks ---------------------------------------------------------------------------------------


def test_without_a_permit_a_fork_is_refused(user: str, setting: str) -> None:
    script = """
worker = start(FORKER)
answers = []
for _ in range(3):
    worker.go()
    worker.decide()
    answers.append(worker.hear())
result = [answers, worker.kill_and_count()]
"""
    assert scripted(user, script, setting) == [[-errno.EPERM] * 3, 1]


def test_one_permit_allows_one_fork(user: str, setting: str) -> None:
    script = """
worker = start(FORKER)
worker.order(b"P")
answers = []
for _ in range(3):
    worker.go()
    worker.decide()
    answers.append(worker.hear())
result = [answers[0] > 0, answers[1:], worker.kill_and_count()]
"""
    assert scripted(user, script, setting) == [True, [-errno.EPERM] * 2, 2]


def test_permits_cannot_be_accumulated(user: str) -> None:
    script = """
worker = start(FORKER)
worker.order(b"PPP")
answers = []
for _ in range(3):
    worker.go()
    worker.decide()
    answers.append(worker.hear())
result = [answers[0] > 0, answers[1:], worker.kill_and_count()]
"""
    assert scripted(user, script) == [True, [-errno.EPERM] * 2, 2]


def test_a_permit_is_valid_for_one_session_only(user: str) -> None:
    script = """
first, second = start(FORKER), start(FORKER)
first.order(b"P")
answers = []
for worker in second, first:
    worker.go()
    worker.decide()
    answers.append(worker.hear())
result = [answers[0], answers[1] > 0, first.kill_and_count(), second.kill_and_count()]
"""
    assert scripted(user, script) == [-errno.EPERM, True, 2, 1]


def test_a_session_never_has_more_than_three_processes(user: str, setting: str) -> None:
    script = """
worker = start(FORKER)
answers = []
for _ in range(6):
    worker.order(b"P")
    worker.go()
    worker.decide()
    answers.append(worker.hear())
result = [[min(answer, 1) for answer in answers], worker.kill_and_count()]
"""
    assert scripted(user, script, setting) == [[1, 1] + [-errno.EPERM] * 4, 3]


def test_a_process_that_ends_makes_room_for_another(user: str, setting: str) -> None:
    script = """
worker = start(FORKER)

def fork():
    worker.order(b"P")
    worker.go()
    worker.decide()
    return worker.hear()

first, second = fork(), fork()
result = [fork()]
for _ in range(5):
    os.kill(first, signal.SIGKILL)
    result.append(worker.bury(first))
    first, second = second, fork()
    result.append(min(second, 1))
    result.append(fork())
os.kill(worker.pid, signal.SIGKILL)
result.append(worker.bury(worker.pid))
os.kill(first, signal.SIGKILL)
result.append(worker.bury(first))
os.kill(second, signal.SIGKILL)
result.append(worker.bury(second))
"""
    no = -errno.EPERM
    expected = [no, *[True, 1, no] * 5, True, True, False]  # False: that was the last one
    assert scripted(user, script, setting) == expected


def test_a_forked_process_belongs_to_its_session_and_is_a_child_of_the_zygote(
    user: str, setting: str
) -> None:
    cell = """
from rlm_worker.sandbox import permits
os.read(0, 1)
if permits.fork() == 0:
    say([os.getppid(), os.getpgid(0), os.getpid(), os.getuid()])
while True: os.read(0, 1)
"""
    script = f"""
worker = start({cell!r})
worker.order(b"P")
worker.go()
worker.decide()
parent, group, pid, uid = worker.hear()
result = [parent == os.getpid(), group == worker.pid, pid != worker.pid, worker.kill_and_count()]
"""
    assert scripted(user, script, setting) == [True, True, True, 2]


def test_a_forked_process_needs_a_permit_to_fork_too(user: str, setting: str) -> None:
    """And counts with the others: it can neither fork without a permit nor be a fourth."""
    cell = """
import signal
from rlm_worker.sandbox import permits
os.read(0, 1)
if permits.fork() == 0:
    for _ in range(4):
        os.read(0, 1)
        try:
            child = permits.fork()
        except OSError as error:
            child = -error.errno
        if child == 0:
            while True: signal.pause()
        say(min(child, 1))
while True: signal.pause()
"""
    script = f"""
worker = start({cell!r})
worker.order(b"P")
worker.go()
worker.decide()
result = []
for permitted in False, True, False, True:
    if permitted:
        worker.order(b"P")
    worker.go()
    worker.decide()
    result.append(worker.hear())
result.append(worker.kill_and_count())
"""
    no = -errno.EPERM
    assert scripted(user, script, setting) == [no, 1, no, no, 3]


def test_a_forked_process_is_as_hardened_as_its_worker(user: str, setting: str) -> None:
    cell = """
import socket
from rlm_worker.sandbox import permits
os.read(0, 1)
permits.fork()
problems = []
for attempt in (
    lambda: open("/etc/passwd"), socket.socket, os.fork, lambda: os.kill(os.getppid(), 0),
    lambda: os.setpgid(0, 0), os.setsid, lambda: os.kill(0, 0), lambda: os.killpg(0, 0),
):
    try:
        attempt()
        problems.append("")
    except OSError as error:
        problems.append(error.errno)
say(problems)
while True: os.read(0, 1)
"""
    script = f"""
worker = start({cell!r})
worker.order(b"P")
worker.go()
worker.decide()
result = [worker.hear(), worker.hear()]
"""
    for found in scripted(user, script, setting):
        assert found[0] in {errno.EPERM, errno.EACCES, errno.ENOENT}
        assert found[1:] == [errno.EPERM] * 7


# -- threads -------------------------------------------------------------------------------------


def test_threads_are_refused_beyond_the_limit(user: str) -> None:
    """Where no limit of the kernel would hold; who is refused can have others later."""
    script = """
worker = start(THREADS)
result = [prepared.asks_for_threads, worker.hear_or_decide(), worker.hear_or_decide()]
"""
    found = scripted(
        user, script, "no namespaces", settings={"max_processes": 8}, broken=["high uids"]
    )
    assert found == [True, [7, "can't start new thread"], "again"]


def test_threads_need_no_approval_where_the_kernel_counts_them(user: str) -> None:
    script = """
worker = start(THREADS)
result = [prepared.asks_for_threads, worker.hear(), worker.hear(), worker.asks(0)]
"""
    found = scripted(user, script, settings={"max_processes": 8})
    assert found == [False, [7, "can't start new thread"], "again", False]


def test_threads_use_up_no_permit(user: str) -> None:
    """Nor does a permit let one more thread be."""
    cell = """
import threading
from rlm_worker.sandbox import permits
os.read(0, 1)
stop = threading.Event()
threads = 0
try:
    while threads < 50:
        threading.Thread(target=stop.wait, daemon=True).start()
        threads += 1
except RuntimeError:
    pass
say(threads)
child = permits.fork()
if child: say(min(child, 1))
while True: os.read(0, 1)
"""
    script = f"""
worker = start({cell!r})
worker.order(b"P")
worker.go()
result = [worker.hear_or_decide(), worker.hear_or_decide(), worker.kill_and_count()]
"""
    found = scripted(
        user, script, "no namespaces", settings={"max_processes": 8}, broken=["high uids"]
    )
    assert found == [7, 1, 2]


# -- who stops waiting ---------------------------------------------------------------------------


def test_a_process_killed_while_it_waits_for_a_permit_blocks_nothing(
    user: str, setting: str
) -> None:
    script = """
gone, other = start(FORKER), start(FORKER)
for worker in gone, other:
    worker.order(b"P")
    worker.go()
    assert worker.asks()
os.kill(gone.pid, signal.SIGKILL)
gone.bury(gone.pid)
asks = gone.asks(0)
gone.permits.decide()
other.decide()
result = [asks, min(other.hear(), 1), gone.kill_and_count(), other.kill_and_count()]
"""
    assert scripted(user, script, setting) == [False, 1, 0, 2]


def test_a_process_interrupted_while_it_waits_for_a_permit_can_ask_again(
    user: str, setting: str
) -> None:
    script = """
worker = start(FORKER)
worker.order(b"P")
result = []
for _ in range(3):
    worker.go()
    assert worker.asks()
    worker.order(b"I")
    result.append(worker.hear())
    result.append(worker.asks(0))
    worker.permits.decide()  # What was asked for is gone; this must not wait for the next.
worker.go()
worker.decide()
result.append(min(worker.hear(), 1))
worker.go()
worker.decide()
result += [worker.hear(), worker.kill_and_count()]
"""
    expected = [*[-errno.EINTR, False] * 3, 1, -errno.EPERM, 2]
    assert scripted(user, script, setting) == expected


def test_a_listener_of_a_dead_session_blocks_nothing(user: str) -> None:
    script = """
worker = start(FORKER)
count = worker.kill_and_count()
worker.permits.decide()
result = [count, worker.asks(0)]
"""
    assert scripted(user, script) == [1, False]
