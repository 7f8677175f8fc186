"""Moves bytes between the host's socket and the guest's shared file, and understands none of them.

It runs in the child process, in threads beside the guest. A second socket brings interrupts, one
byte each and echoed, and takes the reason of an early end; when the host closes it, or is gone, so
is this process. Whatever is odd ends it too.
"""

import contextlib
import os
import select
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NoReturn

from rlm.environments.wasm.guest.shared_file import HEAD, TAKEN

__all__ = ["UNFINISHED", "Relay"]

UNFINISHED = "unfinished-"
"""How folders begin that are there for moments, unless a process is killed in these."""

_PARCEL_BYTES = 4 << 20
_BULK_BYTES = 1 << 15
_MORE_SECONDS = 0.002
_MOST_WORDS_CHARS = 500
_WATCH_SECONDS = 0.02


class Relay:
    """The two sockets, the shared file, and who may touch it when."""

    def __init__(self, stream: socket.socket, control: socket.socket) -> None:
        self._stream = stream
        self._control = control
        self.folder = tempfile.mkdtemp(prefix=UNFINISHED)
        path = str(Path(self.folder, "mail"))
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._mail = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
        self._writing = threading.Lock()
        self._taken = threading.Semaphore(0)
        self._number = self._size = self._interrupts = 0
        self._expected = 0
        self._write_head()

    def end(self, why: str) -> NoReturn:
        """Say why, and end at once."""
        with contextlib.suppress(OSError):
            self._control.sendall(b"\n" + why.encode("ascii", "replace")[:_MOST_WORDS_CHARS])
        self._remove_folder()
        os._exit(1)

    def from_guest(self, data: bytes) -> None:
        """Bytes for the host."""
        try:
            self._stream.sendall(data)
        except OSError:
            self.end("the host is gone")

    def taken(self, data: bytes) -> None:
        """The guest has opened the shared file, which then needs no name, or emptied it."""
        if data != TAKEN.pack(self._expected):
            return  # Some other output of the guest; whoever forges this harms only himself.
        self._expected += 1
        self._remove_folder()
        self._taken.release()

    def carry_in(self) -> None:
        """Put what the host sends into the shared file, piece by piece."""
        while True:
            self._taken.acquire()
            try:
                data = self._received()
            except OSError:
                data = b""
            if not data:
                self.end("the host is gone")
            try:
                self._put(data)
            except OSError as error:
                self.end(f"found no room for its shared file: {error.strerror}")

    def _received(self) -> bytes:
        """What the host sent: at once if it is little, else as much as a parcel takes."""
        data = self._stream.recv(_PARCEL_BYTES)
        pieces, size = [data], len(data)
        while len(data) >= _BULK_BYTES and size < _PARCEL_BYTES:
            if not select.select([self._stream], [], [], _MORE_SECONDS)[0]:
                break
            data = self._stream.recv(_PARCEL_BYTES - size)
            pieces.append(data)
            size += len(data)
        return b"".join(pieces)

    def _put(self, data: bytes) -> None:
        with self._writing:
            self._mail.seek(HEAD.size)
            left = memoryview(data)
            while left:
                left = left[self._mail.write(left) or 0 :]
            self._number += 1
            self._size = len(data)
            self._write_head()

    def obey(self) -> None:
        """Pass interrupts on, and say so when it is done."""
        while True:
            try:
                data = self._control.recv(16)
            except OSError:
                data = b""
            if not data:
                self.end("the host is gone")
            with self._writing:
                self._interrupts += len(data)
                self._write_head()
            with contextlib.suppress(OSError):
                self._control.sendall(data)

    def watch_memory(self, most_bytes: int) -> None:
        """A guest can fill this process by handing out bytes faster than the host reads them."""
        while True:
            time.sleep(_WATCH_SECONDS)
            if _peak_bytes() > most_bytes:
                self.end(f"used more than {most_bytes >> 20:,} MB of memory")

    def _write_head(self) -> None:
        self._mail.seek(0)
        self._mail.write(HEAD.pack(self._number, self._size, self._interrupts, self._number))

    def _remove_folder(self) -> None:
        with contextlib.suppress(OSError):  # Windows keeps what is open; then it goes at the end.
            for path in Path(self.folder).iterdir():
                path.unlink()
            Path(self.folder).rmdir()


def _peak_bytes() -> int:
    """The most memory that this process has had; 0 where nobody tells."""
    if sys.platform == "linux":
        # Not ru_maxrss: that begins with what the host had when it started this process.
        status = Path("/proc/self/status").read_text("ascii", "replace")
        return int(status.partition("VmHWM:")[2].split(None, 1)[0]) * 1024
    try:
        import resource
    except ImportError:  # Windows: the guest's own limit has to do.
        return 0
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024
