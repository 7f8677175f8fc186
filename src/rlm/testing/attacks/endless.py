"""Endless cells and deaths: each has to end in time, without an effect on other sessions."""

from rlm.testing.attacks.attempt import Attack
from rlm.testing.attacks.judges import claims, only_its_own_session

__all__ = ["ATTACKS"]

_ENDLESS = {
    "spin": "while True: pass",
    "spin in C": "sum(range(10**12))",
    "spin with SIGINT ignored": (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    ),
    "spin with SIGINT masked": (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass"
    ),
    "spin with its own SIGINT handler": (
        "import signal\nsignal.signal(signal.SIGINT, lambda *_: None)\nwhile True: pass"
    ),
    "spin and swallow every exception": (
        "while True:\n    try:\n        while True: len('x')\n    except BaseException: pass"
    ),
    "spin in a thread, and wait for it": (
        "import threading\ndef spin():\n    while True: pass\n"
        "t = threading.Thread(target=spin)\nt.start(); t.join()"
    ),
    "stop itself (SIGSTOP)": "import os\nos.kill(os.getpid(), 19)",
    "take over the interrupt machinery through gc": """
import gc
for each in gc.get_objects():
    if type(each).__name__ == 'Interrupts': type(each)._on_signal = lambda *_: None
import signal
signal.signal(signal.SIGINT, lambda *_: None)
while True: pass
""",
    "sleep in a system call and swallow every exception": (
        "import select\nwhile True:\n    try: select.select([], [], [], 100)\n"
        "    except BaseException: pass"
    ),
}

_DEATHS = {
    "end itself with sys.exit": "import sys\nsys.exit(3)",
    "end itself with os._exit": "os._exit(3)",
    "crash with an invalid address": "import ctypes\nctypes.string_at(1)",
    "crash with recursion in Python": """
sys.setrecursionlimit(10**9)
def f(): return f()
try: f()
except SystemError as error: raise MemoryError('as Python 3.12 says it') from error
""",
    "crash with recursion in C": """
nested = iter([1])
for _ in range(1_000_000): nested = filter(None, nested)
next(nested)
""",
    "end itself with a signal": "os.kill(os.getpid(), 9)",
    "close every open file descriptor": "os.closerange(0, 4096)",
}

_OUTLAST = """
lines = lines_out()
end, number = time.monotonic() + 12, 10**6
while time.monotonic() < end:
    send(b''.join(frame(35, number + each, {parts}) for each in range(50)), lines)
    number += 50
    discard_answers(lines)
got('ran for 12 seconds, where 1 is allowed')
"""
"""The next call always arrives before the last one is answered."""

_FREE_CALLS = {
    "stop the clock by asking for the budget endlessly": "b'budget', b'{}'",
    "stop the clock by sending notes endlessly": "b'note', b'{}', b'key', b'1'",
    "stop the clock with tool calls that are answered immediately": (
        """b'tool', b'{"name": "lookup", "arguments": {}}'"""
    ),
    "stop the clock with model calls that are answered immediately": (
        """b'llm', b'{"model": null, "batched": true}', b'x'"""
    ),
}

ATTACKS = (
    *(
        Attack(
            name=name,
            group="endless",
            code=_OUTLAST.replace("{parts}", parts),
            judge=claims,
            timeout_seconds=1,
        )
        for name, parts in _FREE_CALLS.items()
    ),
    *(
        Attack(
            name=name,
            group="endless",
            code=code,
            judge=only_its_own_session,
            timeout_seconds=0.3,
            together=True,
        )
        for name, code in _ENDLESS.items()
    ),
    *(
        Attack(
            name=name,
            group="deaths",
            code=code,
            judge=only_its_own_session,
            timeout_seconds=3,
            together=True,
        )
        for name, code in _DEATHS.items()
    ),
)
