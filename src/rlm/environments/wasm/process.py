"""The host's side of the child process: how it is started, interrupted and ended."""

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from rlm import worker
from rlm.environments._clock import ProcessState
from rlm.environments.wasm.child import UNFINISHED
from rlm.errors import ConfigError
from rlm.worker.sandbox import process_state

__all__ = ["ChildProcess", "private_folder", "started"]

_MAX_WORDS_BYTES = 1_000
_PATIENCE_SECONDS = 0.5
_DISCARD_SECONDS = 5.0


class ChildProcess:
    """A child process with a guest in it; implements `WorkerProcess`.

    `connection` leads to the guest. The control socket carries a byte for each interrupt, which is
    echoed once it is delivered, and finally a line that says why the child ended.
    """

    def __init__(self, guest_bytes: int) -> None:
        self.guest_bytes = guest_bytes
        self._mark = secrets.token_hex(8)
        self.connection, stream = socket.socketpair()
        self._control, control = socket.socketpair()
        self._control.setblocking(False)
        try:
            with stream, control:
                self._process = started(guest_bytes, self._mark, [stream, control])
        except BaseException:
            self.connection.close()
            self._control.close()
            raise
        self._sent = self._arrived = 0
        self._news = asyncio.Event()
        self._words = b""
        self._is_over = False
        self._ended: asyncio.Task[str] | None = None

    def interrupt(self) -> None:
        """Send an interrupt, if the child still runs."""
        with contextlib.suppress(OSError):
            self._sent += self._control.send(b"i")

    async def signals_sent(self) -> None:
        """Wait until every interrupt has been delivered to the guest."""
        while self._arrived < self._sent and not self._is_over:
            self._news.clear()
            await self._news.wait()

    async def state(self) -> ProcessState | None:
        """Return the processor time and state of the child."""
        if sys.platform != "linux" or self._process.returncode is not None:
            return None  # Only Linux tells without the right to inspect other processes.
        found = await asyncio.to_thread(process_state.of_processes, [self._process.pid])
        return None if found is None else ProcessState(**found)

    def kill(self) -> None:
        """End the child and its guest, which can't have started other processes."""
        if self._process.returncode is None:
            self._process.kill()

    def stream_ended(self) -> None:
        """End the child, unless it soon ends on its own."""
        asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self.kill)

    async def wait(self) -> str:
        """Wait until the child has ended and say how."""
        return await asyncio.shield(self._end())

    async def clean_up(self) -> None:
        """Close the control socket, and remove the folders of a child that was killed early."""
        self._control.close()
        await asyncio.to_thread(_remove_folders, self._mark)

    def discard(self) -> None:
        """End a child that was never used; it may have to remove its shared file first."""
        self.connection.close()
        self._control.close()
        try:
            self._process.wait(_DISCARD_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        _remove_folders(self._mark)

    def _end(self) -> "asyncio.Task[str]":
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_task(self._listen())
        return self._ended

    async def _listen(self) -> str:
        while data := await self._heard():
            if not self._words:
                echoed, newline, data = data.partition(b"\n")
                self._arrived += len(echoed)
                self._words = newline
            if self._words:
                self._words = (self._words + data)[:_MAX_WORDS_BYTES]
            self._news.set()
        self._is_over = True
        self._news.set()
        self.kill()
        status = await asyncio.to_thread(self._process.wait)
        said = self._words.decode("ascii", "replace").strip()
        return said or f"exited with status {status}"

    async def _heard(self) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(self._control, 4_096)
        except OSError:
            return b""


# -- how a child is started --

_HERE = str(Path(__file__).parent)
_WORKER = str(Path(worker.__file__).parent)

# The child finds only the files beside this one: no other file of rlm, no folder of the user. That
# saves most imports.
_START = f"""
import sys, types
for name, path in {{
    "rlm": [], "rlm.environments": [], "rlm.environments.wasm": [{_HERE!r}]
}}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from rlm.environments.wasm.child import main
main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])
"""


def started(guest_bytes: int, mark: str, sockets: list[socket.socket]) -> "subprocess.Popen[bytes]":
    """Start a child that gets these sockets and nothing else from this process.

    `mark` becomes part of the names of its temporary folders.
    """
    folder = str(private_folder())
    arguments = ["-I", "-c", _START, _WORKER, str(guest_bytes), mark]
    variables = {"TMPDIR": folder, "TEMP": folder, "TMP": folder, "MALLOC_ARENA_MAX": "2"}
    if sys.platform == "win32":  # Sockets are not files there; they are shared with a process.
        # The python.exe of a virtual environment starts another process, with another id. So start
        # the real one, and tell it where the runtime is.
        arguments[2] = f"import sys\nsys.path.append({_runtime_folder()!r})\n{_START}"
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and program
            [getattr(sys, "_base_executable", sys.executable), *arguments],
            cwd=folder,
            env={**variables, "SYSTEMROOT": os.environ["SYSTEMROOT"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
        )
        assert child.stdin is not None
        with child.stdin as line:
            for each in sockets:
                data = each.share(child.pid)
                line.write(len(data).to_bytes(4, "little") + data)
        return child
    numbers = [each.fileno() for each in sockets]
    return subprocess.Popen(  # noqa: S603 - our own interpreter and program
        [sys.executable, *arguments, *map(str, numbers)],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=numbers,
        start_new_session=True,
    )


def _runtime_folder() -> str:
    """Return the folder from which the runtime is imported."""
    found = importlib.util.find_spec("eryx")
    assert found is not None, "problem() has looked for it"
    assert found.origin is not None
    return str(Path(found.origin).parent.parent)


def _remove_folders(mark: str) -> None:
    """Remove temporary folders of a child that has ended; most children remove theirs."""
    for folder in _runtime_cache().glob(f"{UNFINISHED}{mark}-*"):
        shutil.rmtree(folder, ignore_errors=True)


# -- the folder of the runtime --

_OTHERS_MAY_WRITE = 0o022


def private_folder() -> Path:
    """Return the user's own folder for the runtime, which unpacks about 60 MB there.

    The runtime executes what it finds there as machine code. Its default is the temporary folder,
    to which other users can write.
    """
    folder = _runtime_cache()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise ConfigError(
            f"{folder} can't be created: {error.strerror}; set XDG_CACHE_HOME to a folder of your "
            "own"
        ) from error
    if sys.platform != "win32" and (
        found.st_uid != os.geteuid() or found.st_mode & _OTHERS_MAY_WRITE
    ):
        raise ConfigError(
            f"{folder} can be changed by other users; run `chmod 700 {folder}`, or set "
            "XDG_CACHE_HOME to a folder of your own"
        )
    return folder


def _runtime_cache() -> Path:
    return _caches() / "rlm" / "wasm"


def _caches() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    if Path(named).is_absolute():
        return Path(named)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path.home() / ".cache"
