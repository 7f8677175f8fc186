"""The protocol of the control socket, over which the host asks a zygote for sessions."""

import array
import errno
import socket
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from rlm._util.untrusted import JsonBounds, read_json
from rlm.errors import ConfigError, ProtocolViolation, SessionDied
from rlm.worker import wire
from rlm.worker.bounds import MAX_MESSAGE_CHARS

__all__ = [
    "MAX_REPORT_BYTES",
    "Pair",
    "handshake",
    "is_greeted",
    "layers_in",
    "report_in",
    "request",
    "settings_frame",
]

MAX_REPORT_BYTES = 1 << 20
_LENGTH = struct.Struct("<I")
_REPORT = JsonBounds(MAX_REPORT_BYTES, 20_000)
_FULL = {errno.EAGAIN, errno.ETOOMANYREFS}
_MAX_GREETING_BYTES = 1 << 16
"""A new socket takes this many bytes without blocking."""


class _Report(msgspec.Struct):
    """The fields of a report that the host uses; others are only shown."""

    namespaces: Literal["", "root", "user"] | None
    pid_namespace: bool
    file_system: list[str]
    landlock_abi: int
    seccomp: bool
    own_uid: bool
    sealed: bool
    scratch: str
    forks: bool
    missing: list[str]


Pair = tuple[socket.socket, socket.socket]
"""The host's two sockets of a session: its stream and its monitor."""


def is_greeted(greeting: bytes) -> bool:
    """Return whether `request` sends this greeting, so that the session does not have to."""
    return len(greeting) <= _MAX_GREETING_BYTES


def settings_frame(settings: str) -> bytes:
    """Return the first frame for a zygote; `settings` is JSON."""
    data = settings.encode()
    return _LENGTH.pack(len(data)) + data


def report_in(data: bytes) -> dict[str, Any] | None:
    """Return the zygote's report once it is complete; raise ConfigError if it can't serve."""
    if len(data) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack_from(data)
    if size > MAX_REPORT_BYTES:
        raise ProtocolViolation(f"the sandbox announced a report of {size:,} bytes")
    if len(data) < _LENGTH.size + size:
        return None
    try:
        report = read_json(data[_LENGTH.size : _LENGTH.size + size], _REPORT)
        problem = report.get("error") if isinstance(report, dict) else None
        if problem is None:
            msgspec.convert(report, _Report)
    except (ValueError, msgspec.ValidationError) as error:
        raise ProtocolViolation(f"the sandbox sent a malformed report: {error}") from None
    if problem is not None:
        raise ConfigError(str(problem)[:MAX_MESSAGE_CHARS])
    return dict(report)


def layers_in(report: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what isolates the workers of a zygote, as events and `rlm doctor` name it."""
    kinds = {"root": "namespaces", "user": "user namespace"}
    named = {
        "pid namespace": report["pid_namespace"],
        "pivot_root": "pivot_root" in report["file_system"],
        f"Landlock {report['landlock_abi']}": report["landlock_abi"],
        "sealed": report["sealed"],
        "seccomp": report["seccomp"],
        "own uid": report["own_uid"],
        "cgroup": report.get("cgroup"),
    }
    first = [kinds[report["namespaces"]]] if report["namespaces"] else []
    return (*first, *(name for name, active in named.items() if active))


def handshake(control: socket.socket, settings: str) -> dict[str, Any]:
    """Send the settings and wait for the report; the socket's own timeout applies."""
    control.sendall(settings_frame(settings))
    data = b""
    while (report := report_in(data)) is None:
        piece = control.recv(1 << 16)
        if not piece:
            raise ConnectionError("it closed the connection")
        data += piece
    return report


@lru_cache(maxsize=64)
def _memory_in(greeting: bytes) -> int:
    """Return the memory limit of cells in a greeting; 0 for no limit."""
    decoder = wire.Decoder(wire.TO_WORKER, wire.MAX_TO_WORKER_BYTES)
    decoder.feed(greeting)
    frame = decoder.pop()
    return 0 if frame is None else int(frame.json(0).get("cell_memory_bytes") or 0)


def request(control: socket.socket, order: bytes, greeting: bytes) -> Pair:
    """Ask for a session; raise BlockingIOError if hundreds are being made right now."""
    stream, workers_end = socket.socketpair()
    monitor, zygotes_end = socket.socketpair()
    with workers_end, zygotes_end:
        fds = array.array("i", [workers_end.fileno(), zygotes_end.fileno()])
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)
        try:
            memory = _memory_in(greeting).to_bytes(8, "little")
            control.sendmsg([order + memory], [rights], socket.MSG_DONTWAIT)
        except OSError as error:
            stream.close()
            monitor.close()
            if error.errno in _FULL:
                raise BlockingIOError(*error.args) from None
            raise SessionDied("the sandbox's fork server has ended") from error
        if is_greeted(greeting):
            stream.send(greeting)
    return stream, monitor
