"""Run one program: send its input, limit its output, and end its process group."""

import atexit
import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple

__all__ = ["STDERR_BYTES", "Ended", "kill_programs", "run_program"]

CHUNK_BYTES = 65_536
STDERR_BYTES = 4_096
"""How much of the end of standard error is kept."""

LOOK_SECONDS = 0.05
"""The interval at which to check whether a caller is still waiting."""

READS_AFTER_THE_END = 64
"""How many times to read what a program that has ended left in its pipes, of a mebibyte each."""

GRACE_SECONDS = 1.0
"""The time between asking a program to end and killing it."""

_running: set["subprocess.Popen[bytes]"] = set()


class Ended(NamedTuple):
    """How a program ended. `cut`: it was stopped because its output reached the limit.

    `code` is None if it was stopped because no caller was waiting any more.
    """

    code: int | None
    output: bytes
    stderr: bytes
    cut: bool = False


def run_program(
    arguments: Sequence[str],
    given: bytes,
    folder: str,
    *,
    most_bytes: int,
    is_wanted: Callable[[], bool],
) -> Ended:
    """Run a program in its own process group, and leave nothing of that group behind.

    A process that leaves the group (`setsid`, as daemons do) is not ended: only a subreaper could
    find it, and a library must not turn the program that uses it into one.

    This blocks, so call it in a thread. Raises OSError if the program can't be started.
    """
    process = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
        arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        start_new_session=True,
    )
    _running.add(process)
    try:
        return _Exchange(process, given, most_bytes).until_the_end(is_wanted)
    finally:
        _end(process)
        _running.discard(process)


class _Exchange:
    """Feeds a program and reads its output, in whatever order it reads and writes."""

    def __init__(self, process: "subprocess.Popen[bytes]", given: bytes, most_bytes: int) -> None:
        self._process = process
        self._left = memoryview(given)
        self._room = most_bytes
        self._output: list[bytes] = []
        self._stderr = b""
        self._streams = selectors.DefaultSelector()
        for stream, event in (
            (process.stdin, selectors.EVENT_WRITE),
            (process.stdout, selectors.EVENT_READ),
            (process.stderr, selectors.EVENT_READ),
        ):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._streams.register(stream, event, stream)

    def until_the_end(self, is_wanted: Callable[[], bool]) -> Ended:
        left = READS_AFTER_THE_END
        with self._streams:
            while is_wanted():
                # A surviving child may keep the pipes open, so watch for the end of the program.
                over = self._process.poll() is not None
                left -= over
                moved = self._move(0.0 if over else LOOK_SECONDS)
                if self._room < 0:
                    return self._ended(0, cut=True)
                if over and not (moved and left):
                    return self._ended(self._process.returncode)
                if not self._streams.get_map():
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(LOOK_SECONDS)
            return self._ended(None)

    def _ended(self, code: int | None, *, cut: bool = False) -> Ended:
        return Ended(code, b"".join(self._output), self._stderr, cut)

    def _move(self, seconds: float) -> bool:
        """Read and write whatever is possible now; return whether any output was read."""
        read = False
        for key, _ in self._streams.select(seconds):
            stream: IO[bytes] = key.data
            if stream is self._process.stdin:
                self._feed(stream)
            else:
                read |= self._take(stream)
        return read

    def _feed(self, stream: IO[bytes]) -> None:
        try:
            self._left = self._left[os.write(stream.fileno(), self._left[:CHUNK_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:  # it stopped reading its input, as it may
            self._left = self._left[:0]
        if not self._left:
            self._close(stream)

    def _take(self, stream: IO[bytes]) -> bool:
        try:
            data = os.read(stream.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._close(stream)
        elif stream is self._process.stderr:
            self._stderr = (self._stderr + data)[-STDERR_BYTES:]
        else:
            self._output.append(data[: self._room])
            self._room -= len(data)
        return bool(data)

    def _close(self, stream: IO[bytes]) -> None:
        self._streams.unregister(stream)
        with contextlib.suppress(OSError):  # some input may be unsent
            stream.close()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the whole group: politely if its program is still running, then by force."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS / 5)
    _kill(process)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    process.wait()


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(OSError):  # the group no longer exists
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))


def kill_programs() -> None:
    """Kill all programs, as when the interpreter exits: its threads stop in the middle of work."""
    for process in list(_running):
        _kill(process)


atexit.register(kill_programs)
