"""A worker that was warmed up is as it was before, except for the memory it has touched."""

from __future__ import annotations

import subprocess
import sys

from rlm.worker import wire
from rlm.worker.main import WARM_UP_REQUESTS

# In a process of its own, and inside a function: a session takes over `__main__`.
PROGRAM = """
def compare():
    import linecache, os, __main__
    from rlm.worker.main import Worker
    out = os.dup(1)
    session = Worker()
    before = dict(vars(__main__))
    files = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        session.warm_up()
    assert list(vars(__main__)) == list(before), set(vars(__main__)) ^ set(before)
    assert all(vars(__main__)[name] is value for name, value in before.items())
    assert sorted(os.listdir("/proc/self/fd")) == files
    assert not [name for name in linecache.cache if name.startswith("<cell")]
    assert session._variables.changes() == ({}, {}, [])
    assert session._runner.run_cell("raise ValueError", list).error["traceback"].count("<cell 1>")
    os.write(out, b"as before")
compare()
"""


def test_warming_up_leaves_the_process_unchanged() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("as before", "")


def test_warming_up_sets_no_lasting_limit() -> None:
    decoder = wire.Decoder(wire.TO_WORKER, wire.MAX_TO_WORKER_BYTES)
    decoder.feed(WARM_UP_REQUESTS[0])
    frame = decoder.pop()
    assert frame is not None
    assert frame.type == wire.INIT
    assert frame.json(0)["cell_memory_bytes"] is None
