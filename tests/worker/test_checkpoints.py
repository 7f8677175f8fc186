"""When no checkpoint is taken: why is told, and nothing stays open or blocked."""

import errno
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from rlm.worker import wire
from rlm.worker.checkpoints import Checkpoints


class FakeChannel:
    """Hands out one descriptor and remembers what was sent."""

    def __init__(self) -> None:
        self.fd, self._other = os.pipe()
        os.close(self._other)
        self.sent: list[tuple[int, int, list[bytes]]] = []

    def take_fd(self) -> int:
        return self.fd

    def send(self, kind: int, identity: int, parts: list[bytes]) -> None:
        self.sent.append((kind, identity, parts))

    @property
    def problem(self) -> Any:
        ((kind, identity, parts),) = self.sent
        assert (kind, identity) == (wire.VALUE, 7)
        return wire.Frame(kind, identity, parts).json(0).get("error")


def take(fork: Callable[[], int] | None) -> Any:
    channel = FakeChannel()
    checkpoints = Checkpoints(cast("Any", channel), cast("Any", None), fork)
    assert checkpoints.take(wire.Frame(wire.CHECKPOINT, 7, [])) is False
    with pytest.raises(OSError):
        os.fstat(channel.fd)
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return channel.problem


def refused() -> int:
    raise PermissionError(errno.EPERM, "no permit")


def test_without_a_way_to_fork_there_are_no_checkpoints() -> None:
    assert take(None) == "this sandbox has no checkpoints"


def test_a_refused_fork_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("_thread._count", lambda: 0)
    assert "no permit" in take(refused)


def test_the_end_signal_is_blocked_while_forking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("_thread._count", lambda: 0)
    blocked = []

    def fork() -> int:
        blocked.append(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))
        return 4_000_000

    assert take(fork) is None
    assert blocked == [True]


def test_no_checkpoint_is_taken_while_user_threads_run() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert "threads" in take(lambda: pytest.fail("it forked"))
    finally:
        stop.set()
        thread.join()
