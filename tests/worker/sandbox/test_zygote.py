"""The real zygote program at its control socket: what it makes, obeys, survives and ends."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm.worker import wire
from rlm.worker.sandbox.orders import UNUSED_CHECKPOINT
from tests.worker.sandbox import runs
from tests.worker.sandbox.hosts import NOW, WARM, Host, Session, Stream
from tests.worker.sandbox.processes import PATIENCE_SECONDS, wait_until, wait_until_gone

USERS = ("root", "stranger")
HANG = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(1000)"
LAST_PRELOADED = "xml.etree.ElementTree"


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def host(user: str) -> Iterator[Host]:
    with Host(user) as started:
        yield started


def rare(value: object, name: str | None = None) -> Any:
    """A value that `make test-heavy` tries."""
    return pytest.param(value, marks=pytest.mark.heavy, id=name)


MIDDLE = rare(("namespaces",), "1")
"""Between the two that differ most: every layer, and the fewest."""


@pytest.fixture(params=[(), MIDDLE, ("namespaces", "landlock")], ids=len)
def any_host(request: pytest.FixtureRequest, user: str) -> Iterator[Host]:
    """In every setting: nothing below may depend on a pid namespace."""
    with Host(user, request.param) as started:
        yield started


def with_checkpoint(host: Host) -> tuple[Session, Stream]:
    """A session of two processes."""
    session = host.open()
    session.run("kept = 'kept'")
    session.order(b"P")
    checkpoint, problem = session.take_checkpoint()
    assert problem == ""
    return session, checkpoint


# -- requests ------------------------------------------------------------------------------------


def test_every_request_makes_a_separate_session(any_host: Host) -> None:
    sessions = [any_host.open(kind) for kind in (NOW, WARM, NOW)]
    for number, session in enumerate(sessions):
        session.run(f"mine = {number}")
    assert [session.run("print(mine)") for session in sessions] == ["0", "1", "2"]
    pids = {session.run("import os; print(os.getpid())") for session in sessions}
    groups = {session.run("print(os.getpgid(0))") for session in sessions}
    assert len(pids) == 3
    assert pids == groups
    assert len(any_host.workers()) == 3


def test_sessions_have_a_lower_priority_than_the_host(host: Host) -> None:
    niceness = "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"
    assert host.open().run(niceness) == str(min(19, os.nice(0) + 5))
    priority = Path(f"/proc/{host.process.pid}/autogroup")
    if priority.exists():  # Linux shares the processors among sessions first.
        assert priority.read_text().endswith("nice 5\n")


def test_many_sessions_can_be_requested_at_once(host: Host) -> None:
    sessions = [host.request(NOW if number % 2 else WARM) for number in range(20)]
    for session in sessions:
        session.open()
    assert [session.run("print('here')") for session in sessions] == ["here"] * 20
    assert len(host.workers()) == 20


def test_a_warm_session_waits_for_preloading(user: str) -> None:
    """One that is wanted now does not. Both were asked for before the zygote could look."""
    with Host(user, first=WARM + NOW) as host:
        kept_ready, wanted = host.sessions
        for session in host.sessions:
            session.open()
        loaded = f"import os, sys; print({LAST_PRELOADED!r} in sys.modules)"
        assert wanted.run(loaded) == "False"
        assert kept_ready.run(loaded) == "True"
        first, second = (int(each.run("print(os.getpid())")) for each in (wanted, kept_ready))
        if host.report["pid_namespace"]:
            assert first < second
        later = host.open(WARM)
        assert later.run(loaded) == "True"


def test_a_warm_session_can_be_dropped_while_it_waits_for_preloading(user: str) -> None:
    with Host(user, first=WARM + WARM + NOW) as host:
        forgotten, kept_ready, wanted = host.sessions
        forgotten.close()
        for session in (kept_ready, wanted):
            session.open()
            assert session.run("print(1)") == "1"
        assert host.is_fine()


# -- garbage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [NOW, *map(rare, (WARM, b"?", b"\0", b"\xff"))])
@pytest.mark.parametrize("count", [0, 3, *map(rare, (1, 8))])
def test_a_wrong_number_of_descriptors_does_no_harm(host: Host, kind: bytes, count: int) -> None:
    session = host.open()
    pairs = [socket.socketpair() for _ in range(count)]
    with contextlib.ExitStack() as ends:
        for end in (end for pair in pairs for end in pair):
            ends.enter_context(end)
        host.send(kind, *(pair[1].fileno() for pair in pairs))
        assert host.is_fine()
    assert session.run("print('still')") == "still"


def test_an_unknown_byte_does_no_harm(host: Host) -> None:
    session = host.open()
    for kind in (b"?", b"\0", b"\xff"):
        host.request(kind).close()
    assert host.is_fine()
    assert session.run("print('still')") == "still"


def test_a_flood_of_garbage_does_no_harm(host: Host) -> None:
    session = host.open()
    for _ in range(20):
        host.send(bytes(range(256)))
    wanted = host.request()
    host.send(b"NWN?" * 100)
    wanted.open()
    assert wanted.run("print('made')") == "made"
    assert session.run("print('still')") == "still"
    assert host.is_fine()


def test_descriptors_of_another_kind_do_no_harm(host: Host) -> None:
    """A stream that is no socket costs its session, and no other."""
    session = host.open()
    monitor, zygotes_end = socket.socketpair()
    with monitor, zygotes_end, open(os.devnull, "rb") as file:  # noqa: PTH123
        host.send(NOW, file.fileno(), zygotes_end.fileno())
        zygotes_end.close()
        monitor.settimeout(PATIENCE_SECONDS)
        (fact,) = map(json.loads, monitor.makefile("rb"))
        assert fact["status"] == 1
    assert session.run("print('still')") == "still"
    assert host.is_fine()


def test_hosts_that_vanish_at_once_do_no_harm(host: Host) -> None:
    for kind in (NOW, WARM) * 10:
        host.request(kind).close()
    assert host.is_fine()
    assert host.workers() == []


# -- sessions that can't be made -----------------------------------------------------------------


def test_a_session_that_cannot_be_hardened_says_so_and_does_not_serve(user: str) -> None:
    """It has no file to spare for its Landlock rules."""
    with Host(user, max_open_files=3) as host:
        if not (host.report["landlock_abi"] and host.report["namespaces"]):
            pytest.skip("; ".join(host.report["missing"]))
        for _ in range(3):
            session = host.request()
            facts = session.ends()
            (error,) = [fact["error"] for fact in facts if "error" in fact]
            assert "Too many open files" in error
            assert [fact for fact in facts if "error" not in fact] in ([], [{"status": 1}])
            assert not session.answers()
        assert host.workers() == []


def test_a_session_whose_process_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user who may have few processes, and whom nobody else is."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be a user without other processes")
    monkeypatch.setattr(runs, "STRANGER", runs.STRANGER + 1)
    with Host("stranger", few_processes=8) as host:
        sessions = [host.request() for _ in range(12)]
        refused = [session for session in sessions if not session.answers()]
        assert 0 < len(refused) < 12
        for session in refused:
            (fact,) = session.ends()
            assert "no process could be created" in fact["error"]
        for session in sessions:
            if session not in refused:
                session.let_go()
                assert session.ends() == [{"status": -signal.SIGKILL}]
        assert host.is_fine()


# -- orders --------------------------------------------------------------------------------------


def test_an_interrupt_stops_the_cell_and_is_confirmed(any_host: Host) -> None:
    session, other = any_host.open(), any_host.open()
    for each in (session, other):
        each.run("kept = 1")
    for _ in range(3):
        session.begin("while True: pass")
        # It may come before the cell has begun, and means nothing then.
        error = ""
        session._connection.settimeout(0.05)
        for _ in range(400):
            session.order(b"I")
            assert session.confirmation()
            with contextlib.suppress(TimeoutError):
                _, error = session.finish()
                break
        session._connection.settimeout(PATIENCE_SECONDS)
        assert error == "KeyboardInterrupt"
    assert session.run("print(kept)") == "1"
    assert other.run("print(kept)") == "1"


def test_an_order_to_end_ends_only_its_worker(any_host: Host) -> None:
    session, other = any_host.open(), any_host.open()
    session.order(b"T")
    assert session.ends() == [{"status": -signal.SIGTERM}]
    assert other.run("print('still')") == "still"
    assert len(any_host.workers()) == 1


def test_unknown_orders_do_nothing(any_host: Host) -> None:
    session = any_host.open()
    session.order(bytes(each for each in range(256) if each not in b"ITP"))
    session.order(b"x" * 1_000)
    assert session.run("print('still')") == "still"
    session.order(b"xT")
    assert session.ends() == [{"status": -signal.SIGTERM}]


def test_orders_to_an_ended_session_do_nothing(host: Host) -> None:
    session = host.open()
    session.begin("import os; os._exit(3)")
    assert session.ends() == [{"status": 3}]
    with contextlib.suppress(BrokenPipeError):
        session.order(b"ITPx")
    assert host.is_fine()


# -- checkpoints ---------------------------------------------------------------------------------


def test_each_checkpoint_needs_its_own_permit(any_host: Host) -> None:
    any_host.need_forks()
    session = any_host.open()
    for _ in range(2):
        refused, problem = session.take_checkpoint()
        refused.close()
        assert "not permitted" in problem
    session.order(b"P")
    first, problem = session.take_checkpoint()
    assert problem == ""
    second, problem = session.take_checkpoint()
    assert "not permitted" in problem
    assert len(any_host.workers()) == 2
    assert session.run("print('still')") == "still"
    for each in (first, second):
        each.close()


def test_a_checkpoint_survives_its_worker_and_can_resume(any_host: Host) -> None:
    any_host.need_forks()
    session, checkpoint = with_checkpoint(any_host)
    for _ in range(2):
        session.order(b"I")  # goes to the whole group, and means nothing to who waits
        assert session.confirmation()
    session.order(b"T")
    assert session.end() == {"status": -signal.SIGTERM}
    checkpoint.resume()
    assert checkpoint.run("print(kept)") == "kept"
    session.order(b"P")
    next_one, problem = checkpoint.take_checkpoint()
    assert problem == ""
    checkpoint.close()
    next_one.resume()
    assert next_one.run("print(kept)") == "kept"
    assert len(any_host.workers()) >= 1
    session.let_go()
    assert {"status": -signal.SIGKILL} in session.ends()
    assert any_host.workers() == []
    next_one.close()


def test_superseded_checkpoints_make_room(any_host: Host) -> None:
    any_host.need_forks()
    session, checkpoint = with_checkpoint(any_host)
    for number in range(8):
        session.run(f"kept = {number}")
        session.order(b"P")
        newer, problem = session.take_checkpoint()
        if problem:  # The one before the last may not have ended yet.
            newer.close()
            wait_until(lambda: len(any_host.workers()) <= 2)
            session.order(b"P")
            newer, problem = session.take_checkpoint()
        assert problem == ""
        checkpoint.close()
        checkpoint = newer
        assert len(any_host.workers()) <= 3
    session.order(b"T")
    ends = [session.end() for _ in range(9)]  # The last one let go may end after the worker.
    assert ends.count({"status": UNUSED_CHECKPOINT}) == 8
    assert ends.count({"status": -signal.SIGTERM}) == 1
    checkpoint.resume()
    assert checkpoint.run("print(kept)") == "7"
    checkpoint.close()
    assert session.ends() == [{"status": 0}]


def test_no_checkpoints_are_taken_if_disabled(user: str) -> None:
    with Host(user, checkpoints=False) as host:
        assert host.report["forks"] is False
        session = host.open()
        session.order(b"P")
        nothing, problem = session.take_checkpoint()
        nothing.close()
        assert "no checkpoints" in problem
        assert len(host.workers()) == 1


# -- ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["shutdown", "close"])
def test_closing_the_monitor_socket_ends_the_whole_session(any_host: Host, way: str) -> None:
    any_host.need_forks()
    session, checkpoint = with_checkpoint(any_host)
    theirs = any_host.workers()
    assert len(theirs) == 2
    other = any_host.open()
    session.begin("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [15, 2])\n" + HANG)
    if way == "close":
        session.close()
    else:
        session.let_go()
        assert session.ends() == [{"status": -signal.SIGKILL}] * 2
    wait_until_gone(*theirs)
    assert other.run("print('still')") == "still"
    with pytest.raises((EOFError, ConnectionError)):
        checkpoint.resume()
    checkpoint.close()
    assert any_host.is_fine()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("import os; os._exit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
    ],
)
def test_the_status_of_an_ended_worker_is_reported(host: Host, code: str, status: int) -> None:
    session = host.open()
    session.begin(code)
    assert session.ends() == [{"status": status}]
    assert host.workers() == []


def test_a_worker_ends_when_its_stream_closes(any_host: Host) -> None:
    session = any_host.open()
    Stream.close(session)
    assert session.ends() == [{"status": 0}]
    assert any_host.workers() == []


def test_many_sessions_leave_nothing_behind(any_host: Host) -> None:
    """No zombie and no open file: who was told that nobody is left can rely on it."""
    any_host.settle()
    before = any_host.open_files()
    for number in range(30):
        session = any_host.open() if number % 3 else any_host.request()
        if number % 2:
            session.let_go()
        else:
            session.order(b"T")
        assert len(session.ends()) == 1
        session.close()
    assert any_host.workers() == []
    wait_until(lambda: any_host.open_files() <= before)


def test_closing_the_control_socket_ends_everything(any_host: Host) -> None:
    any_host.need_forks()
    session, checkpoint = with_checkpoint(any_host)
    other = any_host.open()
    other.begin(HANG)
    waiting = any_host.request(WARM)
    theirs = any_host.workers()
    assert len(theirs) >= 3
    any_host.control.close()
    assert any_host.process.wait(PATIENCE_SECONDS) == 0
    wait_until_gone(any_host.zygote, *theirs)
    for each in (session, other, waiting):
        each.ends()
    checkpoint.close()


@pytest.mark.parametrize("victim", ["zygote", "process"])
def test_killing_the_zygote_ends_everything(any_host: Host, victim: str) -> None:
    any_host.need_forks()
    _, checkpoint = with_checkpoint(any_host)
    other = any_host.open()
    other.begin(HANG)
    theirs = any_host.workers()
    assert len(theirs) == 3
    target = any_host.zygote if victim == "zygote" else any_host.process.pid
    os.kill(target, signal.SIGKILL)
    any_host.process.wait(PATIENCE_SECONDS)
    wait_until_gone(any_host.zygote, *theirs)
    for session in any_host.sessions:
        session.ends()
    checkpoint.close()


def test_requests_to_a_dead_zygote_fail(host: Host) -> None:
    os.kill(host.zygote, signal.SIGKILL)
    host.process.wait(PATIENCE_SECONDS)
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        host.request()


def test_a_sandbox_that_cannot_be_built_reports_why_and_ends(user: str) -> None:
    with Host(user, ("seccomp",)) as host:
        assert "system calls can't be filtered" in host.report["error"]
        assert host.process.wait(PATIENCE_SECONDS) == 0


def test_a_workers_only_open_file_is_its_stream(any_host: Host) -> None:
    """Its monitor, the control socket and other sessions are out of its reach."""
    for _ in range(3):
        any_host.open()
    session = any_host.open()
    found = session.run(
        "import os\n"
        "for fd in range(256):\n"
        "    try: kind = os.fstat(fd).st_mode >> 12\n"
        "    except OSError: continue\n"
        "    print(fd, kind)"
        if not any_host.report["sealed"]
        else "import os\n"
        "for fd in range(256):\n"
        "    try: os.lseek(fd, 0, 1)\n"
        "    except OSError as error:\n"
        "        if error.errno == 9: continue\n"
        "    print(fd)"
    )
    fds = [int(line.split()[0]) for line in found.splitlines()]
    assert fds[:4] == [0, 1, 2, 3]
    assert len(fds) <= 8  # and two pipes, by which signals and threads wake the worker


def test_malformed_frames_end_only_their_worker(host: Host) -> None:
    session, other = host.open(), host.open()
    unexpected = wire.encode(wire.RESUME, 1, [])
    session._connection.sendall(unexpected + b"\xff" * 64)  # At once: it ends on the first.
    assert len(session.ends()) == 1
    assert other.run("print('still')") == "still"
