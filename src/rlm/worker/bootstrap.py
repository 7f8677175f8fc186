"""Starts the worker from a command line, in a sandbox that has none of our files.

The command line contains the text of this file: `python3 -S -s -c PROGRAM TEXT MODE [PLACE]`. It
receives the worker's modules from the host, imports them from memory, and becomes a zygote or a
relay. So nothing has to be installed, uploaded or mounted; this file imports nothing of ours.

MODE says how to reach the host: `socket` (the Unix socket PLACE), `bytes` or `lines` (the input and
output of this program). `introduced` is like `bytes`, but this Python sends its magic number first.
"""

from __future__ import annotations

import marshal
import os
import sys
import zlib

__all__ = ["COMPILED", "PACKAGE", "PROGRAM", "SOURCES", "called", "main"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

PACKAGE = "rlm_worker"
COMPILED, SOURCES = b"C", b"S"
PROGRAM = """
import sys
_, text, *words = sys.argv
bootstrap = type(sys)("rlm_bootstrap")
exec(text, bootstrap.__dict__)
bootstrap.main(*words)
"""
"""Runs the text as a separate module, because cells will use `__main__`."""

_KEPT_VARIABLES = ("LD_LIBRARY_PATH",)
_HASH_SEED = {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "2"}
_READ_BYTES = 1 << 16
_MAX_FILES = 256

# The frozen parts of `importlib`. Images come without compiled files, so every import of the
# standard library costs milliseconds; this file imports as little as possible.
_specs: Any = sys.modules["_frozen_importlib"]
_files: Any = sys.modules["_frozen_importlib_external"]


def called(name: str, is_package: bool) -> str:
    """Return the file name of a worker module in tracebacks; there is no such file."""
    return f"/{name.replace('.', '/')}{'/__init__' if is_package else ''}.py"


class Modules:
    """Finds and loads the worker's modules, from source or code."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of a worker module, or None for any other."""
        if name not in self._given:
            return None
        is_package = self._given[name][0]
        origin = called(name, is_package)
        spec = _specs.spec_from_loader(name, self, origin=origin, is_package=is_package)
        spec.has_location = True
        return spec

    def create_module(self, spec: Any) -> ModuleType | None:
        """Return None, for an ordinary module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Run the module."""
        is_package, given = self._given[module.__name__]
        if isinstance(given, str):
            code = compile(given, called(module.__name__, is_package), "exec", dont_inherit=True)
        else:
            code = marshal.loads(given)  # noqa: S302 - of the host, whom we trust
        exec(code, module.__dict__)


class Library:
    """Loads modules of the standard library from code that the host compiled.

    It does so only if the source is identical, so that compiling it here gives the same code.
    """

    def __init__(self, given: dict[str, tuple[bool, int, int, bytes]]) -> None:
        self._given = given
        self._folder = os.path.dirname(os.__file__)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of a module, or None if its source here is different."""
        if name not in self._given:
            return None
        is_package, size, checksum, _ = self._given[name]
        folder = f"{self._folder}/{name.replace('.', '/')}"
        file = f"{folder}/__init__.py" if is_package else f"{folder}.py"
        try:
            with open(file, "rb", 0) as source:
                text = source.read(size + 1)
        except OSError:
            return None
        if len(text) != size or zlib.crc32(text) != checksum:
            return None
        inside = [folder] if is_package else None
        return _files.spec_from_file_location(
            name, file, loader=self, submodule_search_locations=inside
        )

    def create_module(self, spec: Any) -> ModuleType | None:
        """Return None, for an ordinary module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Run the module under the file name that it has here."""
        code = marshal.loads(self._given[module.__name__][3])  # noqa: S302 - of the host
        sys.modules["_imp"]._fix_co_filename(code, module.__file__)
        exec(code, module.__dict__)


def start_clean() -> None:
    """Restart this program with an empty environment and a fixed hash seed."""
    if os.environ.get("PYTHONHASHSEED") == "0":
        return
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().split(b"\0")[:-1]
    program = sys.executable or "/proc/self/exe"
    os.execve(program, words, {**kept, **_HASH_SEED})  # noqa: S606 - itself


def take_modules(archive: bytes) -> None:
    """Make the modules in an archive of the host's `environments/_shipping.py` importable."""
    kind, data = archive[:1], archive[1:]
    sys.path[:] = [entry for entry in sys.path if entry]
    if kind == COMPILED:
        worker, library = marshal.loads(data)  # noqa: S302 - of the host
        sys.meta_path.insert(0, Library(library))
    else:
        import json

        worker = json.loads(zlib.decompress(data))
    sys.meta_path.insert(0, Modules(worker))


def imported(name: str) -> Any:
    """Import a module of the worker, after `take_modules`."""
    __import__(f"{PACKAGE}.{name}")
    return sys.modules[f"{PACKAGE}.{name}"]


def read_archive(read: Callable[[int], bytes]) -> bytes:
    """Read a length, then that many bytes."""
    return read_exactly(read, int.from_bytes(read_exactly(read, 4), "little"))


def read_exactly(read: Callable[[int], bytes], size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += read(size - len(data)) or leave()
    return data


def leave() -> bytes:
    """End this process: the host is gone."""
    os._exit(0)


def read_archive_line(read: Callable[[int], bytes]) -> bytes:
    """Read a line: a mark, then base64. The host sends nothing more until it gets an answer."""
    import base64

    line = b""
    while not line.endswith(b"\n"):
        line += read(_READ_BYTES) or leave()
    return base64.b64decode(line.strip()[1:])


def leave_standard_streams() -> tuple[int, int]:
    """Move the connection to the host away from 0 and 1, where cells would find it."""
    moved = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for place in (0, 1, 2):
        os.dup2(nothing, place)
    os.close(nothing)
    return moved


def serve_socket(place: str) -> None:
    """Become the zygote at the other end of the host's socket."""
    import _socket  # The module `socket` comes with the archive.

    host = _socket.socket(_socket.AF_UNIX)
    host.connect(place)
    host.sendall(_files.MAGIC_NUMBER)
    take_modules(read_archive(host.recv))
    imported("sandbox.start").main(host.fileno(), os.getppid())


def serve_pipe(mode: str) -> None:
    """Start a zygote and become the relay to it."""
    import socket

    pipe = standard_pipe(mode)
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    if os.fork() == 0:
        os.closerange(3, theirs.fileno())  # Only the relay may talk to the host.
        os.closerange(theirs.fileno() + 1, _MAX_FILES)
        imported("sandbox.start").main(theirs.fileno(), parent)
        os._exit(0)
    theirs.close()
    imported("relay").serve(pipe, ours)


def standard_pipe(mode: str) -> Any:
    reader, writer = leave_standard_streams()
    if mode == "introduced":
        os.write(writer, _files.MAGIC_NUMBER)
    if mode != "lines":
        take_modules(read_archive(lambda size: os.read(reader, size)))
        return imported("relay").FilePipe(reader, writer)
    take_modules(read_archive_line(lambda size: os.read(reader, size)))
    return imported("relay").LinePipe(reader, writer)


def main(mode: str, place: str = "") -> None:
    """Become a zygote, or the relay to one."""
    start_clean()
    if mode == "socket":
        serve_socket(place)
    else:
        serve_pipe(mode)
