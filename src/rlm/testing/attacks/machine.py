"""Facts of the checker's own system, to judge from outside whether an attack worked."""

import contextlib
import ctypes
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = [
    "IS_LINUX",
    "file_handle",
    "first_environment",
    "home",
    "is_locked",
    "is_same_file",
    "open_files",
    "processes_named",
    "queued_signals",
    "remove_shared",
    "remove_tree",
    "resident_bytes",
    "shared_files",
    "shared_segment_exists",
    "temporary_folders",
]

IS_LINUX = sys.platform == "linux"
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, not used
_IPC_RMID = 0


def resident_bytes() -> int:
    """Return the memory of this process; 0 if it is unknown."""
    with contextlib.suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")
    return 0


def first_environment() -> list[str]:
    """Return the initial environment of this process, as `NAME=value`; empty if hidden."""
    with contextlib.suppress(OSError):
        return Path("/proc/self/environ").read_text("utf-8", "replace").split("\0")
    return []


def is_same_file(path: Path, device: int, inode: int) -> bool:
    """Return whether a file opened in the sandbox is this one, not a copy."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return (found.st_dev, found.st_ino) == (device, inode)
    return False


def is_locked(path: Path) -> bool:
    """Return whether a file is locked, in any way."""
    if not IS_LINUX:
        return False
    import fcntl

    lock = struct.Struct("<hhxxxxqqixxxx")  # struct flock: kind, origin, start, length, owner
    with path.open("rb") as file:
        wanted = lock.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        found = fcntl.fcntl(file, fcntl.F_GETLK, wanted)
        if lock.unpack(found)[0] != fcntl.F_UNLCK:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def queued_signals() -> int:
    """Return the number of signals queued for this user; 0 if it is unknown."""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text()
        return int(status.partition("SigQ:\t")[2].partition("/")[0] or 0)
    return 0


def open_files() -> set[tuple[int, int]]:
    """Return device and inode of every open file; empty if hidden."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                status = os.fstat(int(entry.name))
                found.add((status.st_dev, status.st_ino))
    return found


def processes_named(name: str) -> list[int]:
    """Return the living processes with this name (at most 15 characters)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status = (entry / "status").read_text()
            if status.startswith(f"Name:\t{name}\n") and "\nState:\tZ" not in status:
                found.append(int(entry.name))
    return found


def temporary_folders(name: str) -> list[Path]:
    """Return everything of that name in the temporary folder, or one folder below."""
    top = Path(tempfile.gettempdir())
    return [*top.glob(name), *top.glob(f"*/{name}")]


def file_handle(path: Path) -> str | None:
    """Return the kernel's handle of a file, in hexadecimal; None if there is none."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "name_to_handle_at", None)
    if call is None:
        return None
    handle = bytearray(8 + 128)
    handle[:4] = (128).to_bytes(4, sys.byteorder)
    buffer = (ctypes.c_char * len(handle)).from_buffer(handle)
    mount = ctypes.c_int()
    if call(-100, os.fsencode(path), buffer, ctypes.byref(mount), 0) != 0:
        return None
    length = 8 + int.from_bytes(buffer.raw[:4], sys.byteorder)
    return buffer.raw[:length].hex()


def shared_segment_exists(key: int) -> bool:
    """Return whether there is a System V segment with that key."""
    call = getattr(ctypes.CDLL(None), "shmget", None)
    return call is not None and call(key, 0, 0) >= 0


def shared_files(name: str) -> list[Path]:
    """Return the files of that name in shared memory."""
    path = _SHARED_MEMORY / name
    return [path] if path.exists() else []


def remove_shared(name: str, key: int) -> None:
    """Remove what attacks may have left in shared memory."""
    for path in shared_files(name) if name else []:
        path.unlink()
    library = ctypes.CDLL(None)
    if hasattr(library, "shmget") and (segment := library.shmget(key, 0, 0)) >= 0:
        library.shmctl(segment, _IPC_RMID, None)


def remove_tree(folder: Path) -> None:
    """Remove a folder of any depth and with any permissions."""
    subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], check=False)  # noqa: S603, S607
    subprocess.run(["rm", "-rf", "--", str(folder)], check=False)  # noqa: S603, S607 - our own folder


def home() -> Path:
    """Return the home folder, or the root if there is none."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
