"""Interrupts: every kind of hang ends; variables are kept, or the session reports its end."""

import asyncio

from rlm.errors import SessionError
from rlm.testing.conformance.bench import Repl, Unmet, expect
from rlm.testing.conformance.checks import Checks

__all__ = ["checks"]

checks = Checks("interrupts")

_CELL_SECONDS = 0.3

_PYTHON_HANGS = {
    "an empty loop": "while True: pass",
    "a sleep": "import time; time.sleep(1000)",
    "a deadlock": "import threading; l = threading.Lock(); l.acquire(); l.acquire()",
    "an await": "import asyncio\nawait asyncio.sleep(1000)",
    "asyncio.run": "import asyncio\nasync def m(): await asyncio.sleep(1000)\nasyncio.run(m())",
    "a loop that catches Exception": "while True:\n    try: x = 1\n    except Exception: pass",
    "a sum over an endless generator": "sum(i for i in iter(int, 1))",
    "a regular expression that explodes": "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
    "a thread that is joined for ever": (
        "import threading, time\nt = threading.Thread(target=time.sleep, args=(30,), daemon=True)\n"
        "t.start(); t.join()"
    ),
    "a pool whose workers sleep": (
        "import threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "stop = threading.Event()\npool = ThreadPoolExecutor(2)\n"
        "try: list(pool.map(stop.wait, [30, 30]))\nfinally: stop.set()"
    ),
    "one interrupt caught, then an end": (
        "import time\ntry: time.sleep(1000)\nexcept BaseException: print('caught')"
    ),
    "a queue that stays empty": "import queue; queue.Queue().get()",
    "a select without end": "import select; select.select([], [], [], 1000)",
    "the __str__ of an answer": (
        "import time\nclass Slow:\n    def __str__(self): time.sleep(1000)\n"
        "answer.update(content=Slow(), ready=True)"
    ),
}
"""Python can be interrupted in these, so variables must be kept."""

_HARD_HANGS = {
    "a sum in C": "sum(range(10**12))",
    "an endless iterator in C": "import itertools; max(itertools.count())",
    "a deque that swallows for ever": (
        "import collections, itertools; collections.deque(itertools.count(), maxlen=0)"
    ),
    "a power of a power": "x9 = 10**10**8",
    "digits of a huge number": (
        "import sys; getattr(sys, 'set_int_max_str_digits', int)(0); str(1 << 40_000_000)"
    ),
    "a loop that catches everything": "while True:\n    try: x = 1\n    except BaseException: pass",
    "the same with calls in it": (
        "def g():\n    try: return len(str(1))\n    except BaseException: return 0\n"
        "while True:\n    try: g(); g()\n    except BaseException: continue"
    ),
    "the same around a comprehension": (
        "while True:\n    try: [len('a') for i in range(10**9)]\n    except BaseException: pass"
    ),
    "a finally that loops": (
        "def f():\n    try:\n        while True: x = 1\n"
        "    finally:\n        while True: x = 1\nf()"
    ),
    "SIGINT ignored": (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    ),
    "SIGINT masked": (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nwhile True: pass"
    ),
    "SIGINT handled by the cell": (
        "import signal; signal.signal(signal.SIGINT, lambda *_: None)\nwhile True: pass"
    ),
}
"""These may end the session, which then has to report it."""


async def _ends(repl: Repl, hang: str, *, may_die: bool) -> str:
    await repl.run("kept = [1]")
    try:
        result = await repl.run(hang, timeout_seconds=_CELL_SECONDS)
    except SessionError as error:
        if not may_die:
            raise Unmet(f"the session was lost: {error}") from error
        async with repl.bench.opened() as another:
            await another.lives()
        return f"the session was lost and reports it: {error}"
    if result.error is None:
        raise Unmet("the cell ended as if nothing had happened")
    shown = await repl.run("answer = {}\nkept")
    if shown.stdout != "[1]\n":
        raise Unmet("the session continues, but the variables are gone")
    if not may_die:
        expect((result.interrupted, result.error.type), (True, "TimeoutError"), "how it ended")
        await repl.lives()
    return "variables kept"


def _add(name: str, hang: str, may_die: bool) -> None:
    kept = "ends, or the session reports that it is lost" if may_die else "ends and keeps variables"

    @checks(f"{name} {kept}", together=True)
    async def hang_ends(repl: Repl) -> str:
        return await _ends(repl, hang, may_die=may_die)


for _name, _hang in _PYTHON_HANGS.items():
    _add(_name, _hang, may_die=False)
for _name, _hang in _HARD_HANGS.items():
    _add(_name, _hang, may_die=True)


@checks("output before an interrupt is kept, and the traceback names the line", fresh=True)
async def output_is_kept(repl: Repl) -> None:
    result = await repl.run("print('before')\nwhile True: pass", timeout_seconds=_CELL_SECONDS)
    expect(result.stdout, "before\n", "the output")
    if result.error is None or "while True: pass" not in result.error.traceback:
        raise Unmet("the traceback does not show where it was")


@checks("interrupt() reaches a cell that waits for a call", fresh=True)
async def while_calling(repl: Repl) -> None:
    for code in ("llm_query('slow')", "await llm_query('slow')"):
        repl.host.start_over(hold_until=10)
        cell = repl.begin(f"kept = 1\n{code}")
        await repl.host.was_asked.wait()
        await repl.session.interrupt()
        expect((await cell).interrupted, True, f"{code} was interrupted")
        repl.host.hold_until = 0
        await repl.shows("kept, llm_query('next')", "(1, 're:next')")


@checks("interrupt() between cells does nothing", fresh=True)
async def between_cells(repl: Repl) -> None:
    for _ in range(5):
        await repl.session.interrupt()
        await repl.shows("1", "1")


@checks("interrupts at any moment never tear a frame", fresh=True)
async def no_torn_frame(repl: Repl) -> None:
    await repl.run("i = wrong = 0")
    code = (
        "while i < 200:\n"
        "    try:\n"
        "        while i < 200:\n"
        "            i += 1\n"
        "            p = 'x' * 5000 + str(i)\n"
        "            wrong += llm_query(p) != 're:' + p\n"
        "    except KeyboardInterrupt: pass"
    )
    cell = repl.begin(code)
    await repl.host.was_asked.wait()
    while not cell.done():
        await repl.session.interrupt()
        await asyncio.sleep(0.005)
    await cell
    await repl.shows("wrong, llm_query('after')", "(0, 're:after')")
