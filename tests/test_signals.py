"""Signals while the main thread waits in a blocking call."""

import subprocess
import sys

import pytest

PROGRAM = """
import signal, threading
from rlm import RLM

def interrupt(*_):
    raise KeyboardInterrupt

def model(prompt):
    asked.append(prompt)
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    never.wait(60)
    asked.append("no interrupt came")
    return "FINAL(too late)"

signal.signal(signal.SIGUSR1, interrupt)
asked, never = [], threading.Event()
try:
    print(RLM(model, environment="inprocess").ask("Which?", "text").answer)
except KeyboardInterrupt:
    print("interrupted", len(asked))
never.set()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no signal to a thread")
def test_a_signal_that_another_thread_receives_interrupts_the_call() -> None:
    """Python handles it in the main thread, which nothing has woken."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.stdout == "interrupted 1\n", done.stderr
