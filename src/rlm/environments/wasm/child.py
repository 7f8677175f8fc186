"""The program of the child process: a WebAssembly sandbox, and threads that relay its bytes.

It imports nothing of `rlm` but the layout of the shared file, and no package but `eryx` (`pyeryx`).
"""

import contextlib
import os
import select
import shutil
import socket
import sys
import tempfile
import threading
import time
import zoneinfo
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from rlm.environments.wasm.guest.shared_file import HEAD, TAKEN

__all__ = ["UNFINISHED", "Relay", "main"]

_OWN_BYTES = 384 << 20
"""How much memory this process may use in addition to the guest's."""

_STALE_SECONDS = 600.0
_BOOT = """
import sys, types
sys.pycache_prefix = "/compiled"
for name, path in {
    "rlm": [], "rlm.worker": ["/rlm/worker"], "rlm.environments": [],
    "rlm.environments.wasm": [], "rlm.environments.wasm.guest": ["/rlm/worker_in_wasm"],
}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from rlm.environments.wasm.guest.boot import boot
"""


def main(worker: str, guest_bytes: int, mark: str, handed_over: list[str]) -> NoReturn:
    """Run one guest until it ends. `worker` is the folder of the worker's sources.

    The names of temporary folders begin with `mark`, so that the host can find leftover ones.
    """
    _sweep()
    stream, control = _sockets(handed_over)
    relay = Relay(stream, control, f"{UNFINISHED}{mark}-")
    max_bytes = guest_bytes + _OWN_BYTES
    for job in (relay.obey, relay.carry_in, lambda: relay.watch_memory(max_bytes)):
        threading.Thread(target=job, daemon=True).start()
    eryx: Any = import_module("eryx")
    guest = Path(__file__).with_name("guest")
    sources = [(worker, "/rlm/worker", True), (str(guest), "/rlm/worker_in_wasm", True)]
    try:
        compiled = _compiled(eryx, sources, [*Path(worker).iterdir(), *guest.iterdir()], mark)
        sandbox = eryx.Sandbox(
            volumes=[
                *(*sources, (compiled, "/compiled", True), (relay.folder, "/mail", True)),
                *((path, "/usr/share/zoneinfo", True) for path in _time_zones()),
            ],
            on_stdout=relay.from_guest,
            on_stderr=relay.note_taken,
            resource_limits=eryx.ResourceLimits(
                execution_timeout_ms=None,
                callback_timeout_ms=None,
                max_callback_invocations=None,
                max_memory_bytes=guest_bytes,
            ),
        )
        sandbox.execute(f"{_BOOT}\nboot('/mail/mail')")
    except (eryx.EryxError, OSError) as error:
        relay.end(f"was ended by WebAssembly: {_last_line(error)}")
    relay.end("ended by itself")


def _sweep() -> None:
    """Remove folders of children that were killed, with their hosts, while they started."""
    for folder in Path(tempfile.gettempdir()).glob(f"{UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _sockets(handed_over: list[str]) -> list[socket.socket]:
    """Return the stream and the control socket, passed by number or, on Windows, over stdin."""
    if sys.platform == "win32":
        read = sys.stdin.buffer.read
        return [socket.fromshare(read(int.from_bytes(read(4), "little"))) for _ in range(2)]
    return [socket.socket(fileno=int(number)) for number in handed_over]


def _time_zones() -> list[str]:
    """Return the folder of this machine's time zones, if it has one."""
    return [path for path in zoneinfo.TZPATH if Path(path).is_dir()][:1]


def _compiled(eryx: Any, sources: list[tuple[str, str, bool]], files: list[Path], mark: str) -> str:
    """Return the folder of the compiled worker; a separate guest compiles it once."""
    newest = max(path.stat().st_mtime_ns for path in files)
    folder = Path(tempfile.gettempdir(), f"compiled-{eryx.__version__}-{newest}")
    if not folder.exists():
        made = tempfile.mkdtemp(prefix=f"{UNFINISHED}{mark}-")
        limits = eryx.ResourceLimits(execution_timeout_ms=60_000, max_memory_bytes=256 << 20)
        baker = eryx.Sandbox(volumes=[*sources, (made, "/compiled", False)], resource_limits=limits)
        try:
            baker.execute(f"{_BOOT}\nboot(None)")
            with contextlib.suppress(OSError):  # Another process was faster.
                Path(made).rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return str(folder)


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "exit status" in line or "trap" in line or "Error" in line]
    return (named or lines or [""])[-1].strip()


# -- the relay --

UNFINISHED = "unfinished-"
"""The prefix of temporary folders; one stays only if the child and its host are killed."""

_PARCEL_BYTES = 4 << 20
_BULK_BYTES = 1 << 15
_MORE_SECONDS = 0.002
_MAX_WORDS_CHARS = 500
_WATCH_SECONDS = 0.02


class Relay:
    """Relays bytes between two sockets of the host and the file shared with the guest."""

    def __init__(self, stream: socket.socket, control: socket.socket, prefix: str) -> None:
        self._stream = stream
        self._control = control
        self.folder = tempfile.mkdtemp(prefix=prefix)
        path = str(Path(self.folder, "mail"))
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._mail = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
        self._writing = threading.Lock()
        self._taken = threading.Semaphore(0)
        self._number = self._size = self._interrupts = 0
        self._expected = 0
        self._write_head()

    def end(self, why: str) -> NoReturn:
        """Report the reason and end the process."""
        with contextlib.suppress(OSError):
            self._control.sendall(b"\n" + why.encode("ascii", "replace")[:_MAX_WORDS_CHARS])
        self._remove_folder()
        os._exit(1)

    def from_guest(self, data: bytes) -> None:
        """Send bytes from the guest to the host."""
        try:
            self._stream.sendall(data)
        except OSError:
            self.end("the host has ended")

    def note_taken(self, data: bytes) -> None:
        """Note that the guest has opened or read the shared file, which no longer needs a name."""
        if data != TAKEN.pack(self._expected):
            return  # Other output of the guest; a forged one harms only the guest.
        self._expected += 1
        self._remove_folder()
        self._taken.release()

    def carry_in(self) -> None:
        """Write what the host sends to the shared file, piece by piece."""
        while True:
            self._taken.acquire()
            try:
                data = self._received()
            except OSError:
                data = b""
            if not data:
                self.end("the host has ended")
            try:
                self._put(data)
            except OSError as error:
                self.end(f"had no room for its shared file: {error.strerror}")

    def _received(self) -> bytes:
        """Receive bytes from the host: a few at once, or as many as fit in a parcel."""
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
        """Pass interrupts on to the guest, and confirm each."""
        while True:
            try:
                data = self._control.recv(16)
            except OSError:
                data = b""
            if not data:
                self.end("the host has ended")
            with self._writing:
                self._interrupts += len(data)
                self._write_head()
            with contextlib.suppress(OSError):
                self._control.sendall(data)

    def watch_memory(self, max_bytes: int) -> None:
        """End this process if a guest fills its memory by writing faster than the host reads."""
        while True:
            time.sleep(_WATCH_SECONDS)
            if _peak_bytes() > max_bytes:
                self.end(f"used more than {max_bytes >> 20:,} MB of memory")

    def _write_head(self) -> None:
        self._mail.seek(0)
        self._mail.write(HEAD.pack(self._number, self._size, self._interrupts, self._number))

    def _remove_folder(self) -> None:
        with contextlib.suppress(OSError):  # Windows keeps open files until the process ends.
            for path in Path(self.folder).iterdir():
                path.unlink()
            Path(self.folder).rmdir()


def _peak_bytes() -> int:
    """Return the peak memory of this process; 0 if it is unknown."""
    if sys.platform == "linux":
        # Not ru_maxrss: it starts at what the host used when it started this process.
        status = Path("/proc/self/status").read_text("ascii", "replace")
        return int(status.partition("VmHWM:")[2].split(None, 1)[0]) * 1024
    try:
        import resource
    except ImportError:  # Windows: only the guest's own limit applies.
        return 0
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024
