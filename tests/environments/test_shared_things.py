"""What a session shares with its host and with other sessions, in every form of the sandbox."""

import contextlib
import fcntl
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from rlm.environments import _clock, _exports, _forked
from rlm.environments._shared import shared_context
from rlm.environments.local import LocalEnvironment
from rlm.errors import SessionRestored
from tests.environments.conftest import FakeHost, Repl, StoredContext, checkpointed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="its layers are Linux's")

FORMS: dict[str, tuple[str, ...]] = {
    "all layers": (),
    "landlock alone": ("namespaces",),
    "sealed": ("namespaces", "landlock"),
}
Opener = Callable[..., Any]


@pytest.fixture(params=list(FORMS.values()), ids=list(FORMS))
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[Opener]:
    """Opens REPLs of one form of the sandbox."""
    environments: list[LocalEnvironment] = []

    async def open_one(**options: Any) -> Repl:
        environments.append(LocalEnvironment(without=request.param, **options))
        host = FakeHost()
        return Repl(await environments[-1].open(host, {"cell_memory_bytes": 300 << 20}), host)

    yield open_one
    for environment in environments:
        await environment.close()


# -- locks -----------------------------------------------------------------------------------------

LOCKS = {
    "flock": "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    "lockf": "fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)",
    "waiting": "fcntl.lockf(file, fcntl.LOCK_SH)",
    "of an open file": (
        "import struct\n"
        "fcntl.fcntl(file, 37, struct.pack('<hhxxxxqqixxxx', fcntl.F_RDLCK, 0, 0, 0, 0))"
    ),
}


@pytest.fixture
def reachable(tmp_path: Path) -> Path:
    """A folder that sessions of another uid can reach."""
    for folder in (tmp_path, *tmp_path.parents):
        with contextlib.suppress(OSError):
            folder.chmod(folder.stat().st_mode | 0o055)
    return tmp_path


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
async def test_a_granted_database_can_be_read_and_is_not_locked(reachable: Path, lock: str) -> None:
    path = reachable / "host.db"
    environment = LocalEnvironment(read_only_paths=[reachable])
    with contextlib.closing(sqlite3.connect(path, timeout=0)) as host:
        host.execute("create table notes (text)")
        host.execute("insert into notes values ('one')")
        host.commit()
        repl = Repl(await environment.open(FakeHost(), {}), FakeHost())
        locked = await repl.run(f"import fcntl\nfile = open({str(path)!r}, 'rb')\n{lock}")
        assert locked.error is None
        read = (
            "import sqlite3\n"
            f"granted = sqlite3.connect('file:{path}?mode=ro', uri=True)\n"
            "granted.execute('begin')\n"
            "granted.execute('select * from notes').fetchall()"
        )
        assert await repl.show(read) == "[('one',)]"
        host.execute("insert into notes values ('two')")
        host.commit()  # "database is locked" on a host whose files cells can lock
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    await environment.close()


async def test_a_sessions_own_databases_work_without_locks() -> None:
    environment = LocalEnvironment()
    repl = Repl(await environment.open(FakeHost(), {}), FakeHost())
    if not await repl.show("import os; os.environ.get('TMPDIR', '')"):
        pytest.skip("there is no scratch folder here")
    shown = await repl.show(
        "import shelve, sqlite3\n"
        "seen = []\n"
        "for mode in ('delete', 'wal'):\n"
        "    one, two = (sqlite3.connect(f'{mode}.db', timeout=0) for _ in range(2))\n"
        "    one.execute(f'pragma journal_mode = {mode}')\n"
        "    one.execute('create table t (n)')\n"
        "    with one: one.executemany('insert into t values (?)', [(n,) for n in range(1000)])\n"
        "    seen.append(two.execute('select sum(n) from t').fetchone()[0])\n"
        "    one.execute('begin immediate')\n"
        "    try: two.execute('begin immediate')\n"
        "    except sqlite3.OperationalError as error: seen.append(str(error))\n"
        "    one.rollback()\n"
        "with shelve.open('shelf') as shelf: shelf['a'] = [1]\n"
        "with shelve.open('shelf') as shelf: seen.append(shelf['a'])\n"
        "seen"
    )
    assert shown == "[499500, 'database is locked', 499500, 'database is locked', [1]]"
    await environment.close()


# -- open files ------------------------------------------------------------------------------------

NO_ADMIN = """
import asyncio, ctypes, os, struct, sys
CAP_SYS_ADMIN = 21
library = ctypes.CDLL(None)
library.prctl(24, CAP_SYS_ADMIN, 0, 0, 0)
header, data = struct.pack('<Ii', 0x20080522, 0), ctypes.create_string_buffer(24)
library.capget(header, data)
words = list(struct.unpack('<6I', data.raw))
words[0] &= ~(1 << CAP_SYS_ADMIN)
words[1] &= ~(1 << CAP_SYS_ADMIN)
assert library.capset(header, struct.pack('<6I', *words)) == 0
from rlm.environments.local import LocalEnvironment
class Host:
    async def answer(self, kind, arguments, parts): return {}, []
async def main():
    environment = LocalEnvironment()
    session = await environment.open(Host(), {})
    result = await session.execute(sys.argv[1], timeout_seconds=20)
    print(result.stdout, result.error, session.layers)
    await environment.close()
asyncio.run(main())
"""
SETS_MODES = """
import os, stat
changed = []
for number in range(9):
    try: os.fchmod(number, stat.S_IMODE(os.fstat(number).st_mode))
    except OSError: continue
    if stat.S_ISCHR(os.fstat(number).st_mode): changed.append(number)
print(changed)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give up a part of its rights")
def test_root_without_capabilities_does_not_expose_its_devices() -> None:
    """Its sessions are in a user namespace, where the host's files are their owner's still."""
    command = [sys.executable, "-c", NO_ADMIN, SETS_MODES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "user namespace" in done.stdout, done.stderr
    assert done.stdout.startswith("[]\n"), done.stdout


async def test_sessions_of_one_zygote_share_no_open_file(opened: Opener) -> None:
    first, second = await opened(), await opened()
    set_flags = (
        "import fcntl, os\n"
        "for number in (0, 1, 2):\n"
        "    fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_APPEND)"
    )
    assert (await first.run(set_flags)).error is None
    flags = "[fcntl.fcntl(number, fcntl.F_GETFL) & os.O_APPEND for number in (0, 1, 2)]"
    assert await second.show(f"import fcntl, os\n{flags}") == "[0, 0, 0]"


def test_a_context_is_reopened_for_each_session() -> None:
    source = StoredContext("text", b"x" * 200_000)
    shared = shared_context(source)
    with shared.reopened() as one, shared.reopened() as other:
        os.lseek(one, 100, os.SEEK_SET)
        fcntl.fcntl(one, fcntl.F_SETFL, os.O_NONBLOCK)
        for number in (other, shared.fd):
            assert os.lseek(number, 0, os.SEEK_CUR) != 100
            assert not fcntl.fcntl(number, fcntl.F_GETFL) & os.O_NONBLOCK
        assert os.read(one, 3) == b"xxx"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(one, b"y")


# -- what is counted -------------------------------------------------------------------------------


async def test_blocked_real_time_signals_are_not_queued(opened: Opener) -> None:
    """Of real-time signals that are blocked one is kept, like of all others."""
    repl = await opened()
    code = (
        "import os, resource, signal\n"
        "number = signal.SIGRTMIN + 1\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [number])\n"
        "for _ in range(100): os.kill(os.getpid(), number)\n"
        "taken = 0\n"
        "while signal.sigtimedwait([number], 0): taken += 1\n"
        "taken, resource.getrlimit(resource.RLIMIT_SIGPENDING)"
    )
    assert await repl.show(code) == "(1, (0, 0))"


async def test_ordinary_signals_still_arrive(opened: Opener) -> None:
    repl = await opened()
    code = (
        "import signal\n"
        "seen = []\n"
        "signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))\n"
        "signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))\n"
        "signal.raise_signal(signal.SIGUSR1)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.01)\n"
        "while len(seen) < 2: signal.pause()\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "seen[:2] == [signal.SIGUSR1, signal.SIGALRM]"
    )
    assert await repl.show(code) == "True"


async def test_data_waiting_in_sockets_is_bounded(opened: Opener) -> None:
    """By the number of open files, times what a socket takes by default.

    The last message may be half as large as a buffer, and begins when there is room for a byte.
    """
    repl = await opened()
    code = (
        "import socket\n"
        "ends, waiting = [], 0\n"
        "try:\n"
        "    while True:\n"
        "        for end in socket.socketpair():\n"
        "            end.setblocking(False)\n"
        "            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)\n"
        "            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)\n"
        "            ends.append(end)\n"
        "except OSError: pass\n"
        "usual = ends[0].getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)\n"
        "for end in ends:\n"
        "    try:\n"
        "        while True: waiting += end.send(bytes(1 << 15))\n"
        "    except BlockingIOError: pass\n"
        "print(usual, waiting <= 256 * usual * 1.5, len(ends) <= 256)"
    )
    one, other = socket.socketpair()
    with one, other:
        usual = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert await repl.show(code) == f"{usual} True True"


# -- what cells can see ----------------------------------------------------------------------------

WALK = """
import sys
def walk(value, depth, seen):
    if id(value) in seen or depth > 6: return
    seen.add(id(value))
    if isinstance(value, (str, int)):
        found.append(str(value))
        return
    if isinstance(value, dict): inner = list(value.values())
    elif isinstance(value, (list, tuple, set)): inner = list(value)
    elif type(value).__module__.startswith('rlm_worker'):
        inner = list(getattr(value, '__dict__', {}).values())
    else: return
    for each in inner: walk(each, depth + 1, seen)
found, below, seen = [], sys._getframe().f_back, set()
while below is not None:
    if below.f_code.co_name != '<module>': walk(dict(below.f_locals), 0, seen)
    below = below.f_back
print(len(found) > 10)
found += [*sys.argv, *sys.orig_argv, sys.executable]
print(*(each for each in found if len(each) < 500), sep='\\n')
"""


async def test_the_stack_of_a_worker_reveals_nothing_of_the_host(
    opened: Opener, reachable: Path
) -> None:
    """Neither its process id nor what it granted, nor its virtual environment."""
    repl = await opened(read_only_paths=[reachable])
    enough, *shown = (await repl.show(WALK)).splitlines()
    assert enough == "True"
    assert str(os.getpid()) not in shown
    assert not [line for line in shown if str(reachable) in line]
    if sys.prefix != sys.base_prefix:
        assert not [line for line in shown if sys.executable in line]


# -- processor time --------------------------------------------------------------------------------


@pytest.mark.heavy
async def test_a_checkpoint_inherits_the_remaining_processor_time(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_forked, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(_clock, "_GRACE_SECONDS", 0.1)
    repl = await opened(cpu_seconds=100)
    await repl.run("import resource\nkept = 1")
    await checkpointed(repl)
    left = [100]
    for _ in range(2):
        with pytest.raises(SessionRestored):
            await repl.run("sum(range(10**12))", timeout_seconds=2)
        left.append(int(await repl.show("resource.getrlimit(resource.RLIMIT_CPU)[0] * kept")))
        await checkpointed(repl)
    assert left[0] > left[1] > left[2]


# -- exports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        [f"file-{number}" for number in range(119_000)],
        [f"{'/'.join(f'{number}-{depth}' for depth in range(40))}/f" for number in range(3_000)],
    ],
    ids=["many files", "many folders"],
)
async def test_an_export_holds_a_bounded_number_of_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    monkeypatch.setattr(_exports, "_MAX_ENTRIES", 500)

    async def read(name: str, offset: int) -> bytes:
        return b""

    files = [(name, 0) for name in names]
    target = await _exports.export_files(files, read, tmp_path, label="s", max_bytes=1 << 20)
    assert target is not None
    assert 400 < sum(1 for _ in target.rglob("*")) <= 500
