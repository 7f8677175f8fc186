"""Making IPython's shell leaves the process and its files alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("IPython", reason="IPython is an extra: pip install 'recursivelm[ipython]'")

PROGRAM = """
import builtins, os, signal, sys, threading
from rlm.worker.ipython_shell import make_shell

def state():
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    streams = [sys.stdin, sys.stdout, sys.stderr]
    hooks = [sys.excepthook, sys.displayhook, sys.breakpointhook, sys.meta_path[:], sys.path[:]]
    others = [threading.active_count(), builtins.exit, sys.modules["__main__"]]
    return handlers, streams, hooks, others

before, names = state(), set(globals())
shell = make_shell(sys.modules["__main__"])
assert state() == before
assert shell.user_ns is globals()
assert set(globals()) - names <= {"names", "before", "shell", "_", "__", "___", "__builtin__"}
assert not os.listdir("."), os.listdir(".")
import IPython
assert IPython.get_ipython() is shell
print("as before")
"""


def test_making_a_shell_leaves_the_process_unchanged(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("as before\n", "")
    assert list(tmp_path.iterdir()) == []
