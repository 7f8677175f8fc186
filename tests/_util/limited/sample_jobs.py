"""Functions that the tests call in processes with limits, well-behaved and misbehaving."""

import ctypes
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def echo(value: Any) -> Any:
    return value


def process() -> int:
    return os.getpid()


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def session_priority() -> str:
    return Path("/proc/self/autogroup").read_text()


def descriptors() -> list[str]:
    return sorted(each.name for each in Path("/proc/self/fd").iterdir())


def variables() -> dict[str, str]:
    return dict(os.environ)


def fail() -> None:
    raise ValueError("this value is wrong")


def take_memory() -> int:
    return len([bytearray(1 << 20) for _ in range(4_000)])


def spin() -> None:
    while True:
        pass


def sleep() -> None:
    time.sleep(10_000)


def long_text(chars: int) -> str:
    return "x" * chars


def die() -> None:
    ctypes.string_at(0)


def leave() -> None:
    os._exit(3)


def count_then_sleep(most: int) -> Iterator[int]:
    yield from range(most)
    time.sleep(10_000)


def count(most: int) -> Iterator[int]:
    yield from range(most)


def many(most: int) -> Iterator[str]:
    for _ in range(most):
        yield "x" * 1_000


def attempt(what: str, place: str = "") -> str:
    """Try something that no job needs; return the error it raises."""
    attempts: dict[str, Callable[[], object]] = {
        "network": lambda: socket.create_connection(("127.0.0.1", 9)),
        "fork": os.fork,
        "program": lambda: subprocess.run([sys.executable, "-V"], check=False),
        "kill": lambda: os.kill(os.getppid(), 0),
        "write": lambda: Path(place).write_text("changed"),
        "remove": lambda: Path(place).unlink(),
    }
    try:
        attempts[what]()
    except OSError as error:
        return type(error).__name__
    return "done"


class Counter:
    """An object kept in its own process, with methods that end the process."""

    def __init__(self, start: int) -> None:
        self._count = start

    def add(self, number: int) -> list[int]:
        self._count += number
        return [self._count, os.getpid()]

    def sleep(self) -> None:
        time.sleep(600)

    def fill(self) -> int:
        return len(bytearray(4 << 30))

    def talk(self) -> str:
        return "x" * (8 << 20)

    def fail(self) -> None:
        raise ValueError("no")


def counter(start: int) -> Counter:
    return Counter(start)
