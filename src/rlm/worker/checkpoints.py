"""Checkpoints: a copy of the worker, made by fork, that waits in case the worker is lost.

The copy listens on its own socket. When the host resumes it, it becomes the worker; when the
host closes the socket, it ends. Taking a checkpoint costs a few milliseconds, so the host asks for
one when the worker is idle.
"""

from __future__ import annotations

import _thread
import os
import signal
import socket

from . import wire
from .sandbox import privileges
from .sandbox.orders import UNUSED_CHECKPOINT

__all__ = ["Checkpoints"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .channel import Channel
    from .interrupts import Interrupts

    Fork = Callable[[], int]


class Checkpoints:
    """Takes checkpoints with `fork`, which is None where the sandbox can't fork safely."""

    def __init__(self, channel: Channel, interrupts: Interrupts, fork: Fork | None) -> None:
        self._channel = channel
        self._interrupts = interrupts
        self._fork = fork

    def take(self, frame: wire.Frame) -> bool:
        """Answer the host's request; return True in the copy, once it has become the worker."""
        fd = self._channel.take_fd()
        problem = self._problem()
        if problem is None and self._fork is not None:
            # A waiting checkpoint must survive the SIGTERM that ends the worker.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            try:
                if self._fork() == 0:
                    self._wait_as_checkpoint(fd)
                    return True
            except OSError as error:
                problem = str(error)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.close(fd)
        meta = {} if problem is None else {"error": problem}
        self._channel.send(wire.VALUE, frame.id, [wire.to_json(meta)])
        return False

    def _problem(self) -> str | None:
        if self._fork is None:
            return "this sandbox has no checkpoints"
        if _thread._count():
            return "a fork would lose the threads that user code has started"
        return None

    def _wait_as_checkpoint(self, fd: int) -> None:
        try:
            self._interrupts.renew()
            self._channel.adopt(socket.socket(fileno=fd))
        except OSError:
            os._exit(UNUSED_CHECKPOINT)  # It must not answer in the worker's place.
        self._channel.status_at_end = UNUSED_CHECKPOINT
        frame = self._channel.next_request()
        self._channel.status_at_end = 0
        if frame.type != wire.RESUME:
            os._exit(70)
        privileges.spend_cpu(frame.json(0)["cpu_seconds"])
        signal.sigtimedwait([signal.SIGTERM], 0)  # Discard the one that ended the old worker.
        self._channel.send(wire.VALUE, frame.id, [wire.to_json({})])
