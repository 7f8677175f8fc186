"""The process that uses rlm: killed, forked or just looked at, it leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.environments.footprint import Alive, alive, descendants, until_gone

WITHOUT = {
    "everything": (),
    "no namespaces": ("namespaces",),
    "sealed": ("namespaces", "landlock"),
}
settings = pytest.mark.parametrize(
    "without",
    [
        pytest.param(without, id=name, marks=pytest.mark.heavy if without else ())
        for name, without in WITHOUT.items()
    ],
)

HOST = """
import asyncio, os, sys, time
from rlm.environments.local import LocalEnvironment

class Never:
    async def answer(self, kind, arguments, parts):
        waiting.set()
        await asyncio.sleep(1000)

waiting = asyncio.Event()

async def sessions(without):
    environment = LocalEnvironment(without=without)
    opened = [await environment.open(Never(), {}) for _ in range(4)]
    for each in opened:
        await each.execute("x = 1", timeout_seconds=30)
    while any(each._checkpoint is None for each in opened):
        await asyncio.sleep(0.01)
    cells = [
        asyncio.create_task(opened[1].execute("while True: pass", timeout_seconds=1000)),
        asyncio.create_task(opened[2].execute("sum(range(10**13))", timeout_seconds=1000)),
        asyncio.create_task(opened[3].execute("llm_query('never')", timeout_seconds=1000)),
    ]
    await waiting.wait()
    return opened, cells
"""

WAITS = """
async def main():
    kept = await sessions(sys.argv[1:])
    print("ready", flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""

FORKS = """
async def main():
    kept = await sessions(sys.argv[1:])
    if os.fork() == 0:  # Everything that is open here is open there too.
        time.sleep(1000)
        os._exit(0)
    print("ready", flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""

GOES_ON_AS_A_COPY = """
async def main():
    opened, cells = await sessions(sys.argv[1:])
    if (child := os.fork()) == 0:
        os._exit(0)  # As those of multiprocessing do.
    os.waitpid(child, 0)
    done = await opened[0].execute("x + 1", timeout_seconds=30)
    print(done.stdout.strip(), flush=True)
    for each in opened:
        await each.close()
    await asyncio.gather(*cells, return_exceptions=True)
    if (child := os.fork()) == 0:
        return "copy"
    os.waitpid(child, 0)
    return "parent"

async def once(without):
    environment = LocalEnvironment(without=without)
    session = await environment.open(Never(), {})
    done = await session.execute("6 * 7", timeout_seconds=30)
    await environment.close()
    return done.stdout.strip()

who = asyncio.run(main())
print(who, asyncio.run(once(sys.argv[1:])), flush=True)
"""


@pytest.fixture
def hosts() -> Iterator[list["subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for each in started:
        left = {found for pid in descendants(each.pid) if (found := alive(pid))}
        each.kill()
        each.communicate()
        for found in left:
            if alive(found.pid) == found:
                os.kill(found.pid, signal.SIGKILL)


def start(program: str, without: Sequence[str], temporary: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOST + program, *without],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )


def family(host: "subprocess.Popen[str]") -> set[Alive]:
    """Return a host that is ready, and all its descendants."""
    assert host.stdout is not None
    assert host.stdout.readline() == "ready\n"
    return {found for pid in descendants(host.pid) if (found := alive(pid))}


@settings
def test_a_killed_host_leaves_no_process(
    without: tuple[str, ...], tmp_path: Path, hosts: list["subprocess.Popen[str]"]
) -> None:
    host = start(WAITS, without, tmp_path)
    hosts.append(host)
    before = family(host)
    assert len(before) >= 1 + 4 + 4, before  # the zygote, the workers, and a checkpoint of each
    host.kill()
    host.wait()
    assert until_gone(before) == set()
    assert list(tmp_path.iterdir()) == []


@settings
def test_a_killed_host_that_had_forked_leaves_only_its_copy(
    without: tuple[str, ...], tmp_path: Path, hosts: list["subprocess.Popen[str]"]
) -> None:
    """The fork holds every socket open; the zygote must notice nevertheless."""
    host = start(FORKS, without, tmp_path)
    hosts.append(host)
    before = family(host)
    command = Path(f"/proc/{host.pid}/cmdline").read_bytes()
    copies = {each for each in before if Path(f"/proc/{each.pid}/cmdline").read_bytes() == command}
    assert len(copies) == 1
    host.kill()
    host.wait()
    left = until_gone(before - copies)
    alive_then = {each for each in copies if alive(each.pid) == each}
    for each in copies:
        os.kill(each.pid, signal.SIGKILL)
    assert left == set()
    assert alive_then == copies
    assert until_gone(before) == set()


@settings
def test_a_fork_of_the_host_can_continue_alone(
    without: tuple[str, ...], tmp_path: Path, hosts: list["subprocess.Popen[str]"]
) -> None:
    host = start(GOES_ON_AS_A_COPY, without, tmp_path)
    hosts.append(host)
    said, _ = host.communicate(timeout=120)
    assert said.splitlines() == ["2", "copy 42", "parent 42"]
    assert host.returncode == 0
    assert list(tmp_path.iterdir()) == []


LOOKS_AT_ITSELF = """
import gc, json, locale, logging, multiprocessing, os, resource, signal, socket, sys, threading
import warnings

def state():
    umask = os.umask(0)
    os.umask(umask)
    status = open("/proc/self/status").read().splitlines()
    wakeup = signal.set_wakeup_fd(-1)
    return {
        "signals": {n: repr(signal.getsignal(n)) for n in signal.valid_signals()},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "wakeup": wakeup,
        "cwd": os.getcwd(),
        "umask": umask,
        "environment": dict(os.environ),
        "streams": [id(each) for each in (sys.stdin, sys.stdout, sys.stderr)],
        "hooks": [id(each) for each in (sys.excepthook, sys.unraisablehook, sys.displayhook,
                                        threading.excepthook, sys.breakpointhook)],
        "tracing": [sys.gettrace(), sys.getprofile()],
        "limits": [resource.getrlimit(n) for n in range(16)],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "privileges": [l for l in status if l.startswith(("NoNewPrivs", "Seccomp:", "Cap", "Uid"))],
        "locale": locale.setlocale(locale.LC_ALL),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "time-out": socket.getdefaulttimeout(),
        "recursion": sys.getrecursionlimit(),
        "switching": sys.getswitchinterval(),
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
        "path": list(sys.path),
        "arguments": list(sys.argv),
        "finders": [repr(each) for each in sys.meta_path],
        "handlers": [repr(each) for each in logging.getLogger().handlers],
        "level": logging.getLogger().level,
        "builtins": sorted(vars(__import__("builtins"))),
    }

before = state()
import asyncio
from rlm import RLM, ScriptedClient
imported = state()
CELL = "```repl\\nimport os\\nos.chdir('/')\\nFINAL(llm_query('a') + str(6 * 7))\\n```"

def answer(request):
    return CELL if "REPL" in str(request.messages[0].content) else "re:"

with RLM(ScriptedClient(rules=[("", answer)])) as engine:
    answers = [engine.ask("What is it?", "context").answer]

async def main():
    engine = RLM(ScriptedClient(rules=[("", answer)]))
    asked = [engine.aask("What is it?", "context") for _ in range(5)]
    answers.extend(result.answer for result in await asyncio.gather(*asked))
    await engine.aclose()

asyncio.run(main())
print(json.dumps([answers, before, imported, state()], default=repr))
"""


def test_importing_and_using_rlm_leaves_the_process_unchanged(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOKS_AT_ITSELF],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers, before, imported, used = json.loads(done.stdout)
    assert answers == ["re:42"] * 6
    assert imported == before
    assert used == before
    assert list(tmp_path.iterdir()) == []


BLOCKS_SIGNALS = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD})

async def main():
    session = await LocalEnvironment().open(Never(), {})
    await session.execute("x = 1", timeout_seconds=30)
    done = await session.execute("while True: pass", timeout_seconds=0.3)
    print(done.interrupted, "x" in session.variables)
    await session.close()
asyncio.run(main())
"""


def test_cells_can_be_interrupted_though_the_host_blocks_signals() -> None:
    """As threads of servers do; a process inherits that from the thread that starts it."""
    done = subprocess.run(
        [sys.executable, "-c", HOST + BLOCKS_SIGNALS], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True True\n"
