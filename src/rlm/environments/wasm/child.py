"""The program of the child process: one sandbox of WebAssembly, and a relay beside it.

It imports nothing of `rlm` but that relay, and of others only `eryx` (the package `pyeryx`).
"""

import contextlib
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

from rlm.environments.wasm.relay import UNFINISHED, Relay

__all__ = ["main"]

_OWN_BYTES = 384 << 20
"""What this process may use besides the guest's memory."""

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


def main(worker: str, guest_bytes: int, handed_over: list[str]) -> NoReturn:
    """Run one guest to its end. `worker` is the folder of the worker's sources."""
    _sweep()
    relay = Relay(*_sockets(handed_over))
    most_bytes = guest_bytes + _OWN_BYTES
    for job in (relay.obey, relay.carry_in, lambda: relay.watch_memory(most_bytes)):
        threading.Thread(target=job, daemon=True).start()
    eryx: Any = import_module("eryx")
    guest = Path(__file__).with_name("guest")
    sources = [(worker, "/rlm/worker", True), (str(guest), "/rlm/worker_in_wasm", True)]
    try:
        compiled = _compiled(eryx, sources, [*Path(worker).iterdir(), *guest.iterdir()])
        sandbox = eryx.Sandbox(
            volumes=[
                *(*sources, (compiled, "/compiled", True), (relay.folder, "/mail", True)),
                *((path, "/usr/share/zoneinfo", True) for path in _time_zones()),
            ],
            on_stdout=relay.from_guest,
            on_stderr=relay.taken,
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
    """Remove what children left that were killed while they started."""
    for folder in Path(tempfile.gettempdir()).glob(f"{UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _sockets(handed_over: list[str]) -> list[socket.socket]:
    """The stream and the line of control: by their numbers, or on Windows through stdin."""
    if sys.platform == "win32":
        read = sys.stdin.buffer.read
        return [socket.fromshare(read(int.from_bytes(read(4), "little"))) for _ in range(2)]
    return [socket.socket(fileno=int(number)) for number in handed_over]


def _time_zones() -> list[str]:
    """The folder of this machine's time zones, if it has one."""
    return [path for path in zoneinfo.TZPATH if Path(path).is_dir()][:1]


def _compiled(eryx: Any, sources: list[tuple[str, str, bool]], files: list[Path]) -> str:
    """Where the worker lies compiled for the guest's Python; made once, by a guest of its own."""
    newest = max(path.stat().st_mtime_ns for path in files)
    folder = Path(tempfile.gettempdir(), f"compiled-{eryx.__version__}-{newest}")
    if not folder.exists():
        made = tempfile.mkdtemp(prefix=UNFINISHED)
        limits = eryx.ResourceLimits(execution_timeout_ms=60_000, max_memory_bytes=256 << 20)
        baker = eryx.Sandbox(volumes=[*sources, (made, "/compiled", False)], resource_limits=limits)
        baker.execute(f"{_BOOT}\nboot(None)")
        with contextlib.suppress(OSError):  # Another process was faster.
            Path(made).rename(folder)
    return str(folder)


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "exit status" in line or "trap" in line or "Error" in line]
    return (named or lines or [""])[-1].strip()
