"""The process of a job on systems that can't fork in advance: its streams are pipes."""

import importlib
import os
import sys

from rlm._util.limited._process import do_job

__all__ = ["main"]

_NICENESS = 5
"""The host's own work goes first. On Windows, the host chooses the priority of the process."""


def main(module_name: str) -> None:
    """Do the job that arrives on stdin, answer on stdout, and end."""
    sys.dont_write_bytecode = True
    if sys.platform != "win32":
        os.nice(_NICENESS)
    source, target = sys.stdin.fileno(), os.dup(sys.stdout.fileno())
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what libraries print
    with os.fdopen(target, "wb", buffering=0) as file:

        def write(data: bytes) -> None:
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]

        do_job(importlib.import_module(module_name), lambda size: os.read(source, size), write)
    os._exit(0)
