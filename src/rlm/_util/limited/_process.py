"""Inside the process of a job: read the job from a stream, set limits, do the job, answer.

Only the standard library is imported here, because every such process starts with this module.
"""

import json
import math
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NoReturn

if sys.platform == "win32":
    resource = None
else:
    import resource

__all__ = [
    "DONE",
    "FAILED",
    "HEAD",
    "ITEM",
    "MEMORY",
    "OUTPUT",
    "READY",
    "TEXT",
    "do_job",
    "rehearse",
]

HEAD = struct.Struct("<cI")
"""The header of every frame: its kind and its length."""

ITEM, DONE, TEXT, FAILED, MEMORY, OUTPUT = b"i", b"d", b"t", b"f", b"m", b"o"
"""One of several values; the value as JSON, or as text; a failure; two limits that it exceeded."""

READY = b"r"
"""What a process sends when everything is loaded."""

_MAX_OPEN_FILES = 256
_MAX_MESSAGE_CHARS = 500

Read = Callable[[int], bytes]
Write = Callable[[bytes], object]


def do_job(module: ModuleType, read: Read, write: Write) -> None:
    """Do one job; its frames are a header with its limits, its arguments, and possibly data.

    With `serves`, the function makes an object, and later frames call its methods.
    """
    write(READY)
    header = json.loads(_frame(read))
    most = header["output_bytes"]
    out_of_memory = HEAD.pack(MEMORY, 0)
    _limit_memory(header["memory_bytes"])
    if header["serves"]:
        _limit_call(header["seconds"])
    else:
        _limit_time(header["seconds"])
    try:
        arguments = json.loads(_frame(read))
        if header["data"]:
            arguments = [_frame(read), *arguments]
        value = getattr(module, header["function"])(*arguments)
        if header["serves"]:
            _serve(value, read, write, most)
        if isinstance(value, Iterator):
            for item in value:
                most = _send(write, ITEM, item, most)
            value = None
        _send(write, DONE, value, most)
    except MemoryError:
        write(out_of_memory)
    except BaseException as error:  # noqa: BLE001 - reported to the host; a panic of Rust is no Exception
        words = f"{type(error).__name__}: {error}"[:_MAX_MESSAGE_CHARS]
        _send(write, FAILED, words, _MAX_MESSAGE_CHARS * 12)


def _serve(served: Any, read: Read, write: Write, most: int) -> NoReturn:
    """Call methods of an object until the host closes the stream, or one raises."""
    _send(write, DONE, None, most)
    while True:
        header = json.loads(_frame(read))
        arguments = json.loads(_frame(read))
        _limit_call(header["seconds"])
        _send(write, DONE, getattr(served, header["function"])(*arguments), most)


def _send(write: Write, kind: bytes, value: Any, most: int) -> int:
    """Write one frame, or report that it is too large; return how many bytes may follow."""
    if isinstance(value, str) and kind == DONE:
        kind, data = TEXT, value.encode("utf-8", "surrogatepass")
    else:
        data = json.dumps(value).encode()
    if len(data) > most:
        kind, data = OUTPUT, b""
    write(HEAD.pack(kind, len(data)))
    write(data)
    if kind == OUTPUT:
        os._exit(0)
    return most - len(data)


def _frame(read: Read) -> bytes:
    _, size = HEAD.unpack(_exactly(read, HEAD.size))
    return _exactly(read, size)


def _exactly(read: Read, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = read(min(size - len(data), 1 << 20))
        if not piece:
            os._exit(0)  # The host no longer wants it.
        data += piece
    return bytes(data)


def rehearse() -> None:
    """Do what every job does, so that shared memory pages are copied before the first job."""
    json.loads(
        json.dumps({"numbers": [1, 2.5, None], "text": "\u00e9", "function": rehearse.__name__})
    )
    int(_read("/proc/self/statm").split()[0])
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE))


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 4_096)
    finally:
        os.close(fd)


def _limit_memory(more_bytes: int) -> None:
    """Limit the address space to what is used now plus `more_bytes`; forbid files and dumps."""
    if resource is None:
        return
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, 0)
    _lower(resource.RLIMIT_NOFILE, _MAX_OPEN_FILES)
    if sys.platform == "linux":
        used = int(_read("/proc/self/statm").split()[0]) * resource.getpagesize()
        _lower(resource.RLIMIT_AS, used + more_bytes)


def _limit_time(seconds: float) -> None:
    """Limit the processor time; the host limits the elapsed time."""
    if resource is None:
        return
    most = max(1, math.ceil(seconds))
    _lower(resource.RLIMIT_CPU, most, most + 1)  # The first limit's signal identifies it.


def _limit_call(seconds: float) -> None:
    """Limit the processor time of one call among many; its threads may use every core."""
    if resource is None:
        return
    used = time.process_time() + seconds * (os.cpu_count() or 1)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    most = math.ceil(used) + 1
    resource.setrlimit(
        resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )


def _lower(which: int, soft: int, hard: int | None = None) -> None:
    """Set a limit unless it is already lower."""
    assert resource is not None
    _, known = resource.getrlimit(which)
    wanted = (soft, soft if hard is None else hard)
    most = wanted if known == resource.RLIM_INFINITY else tuple(min(each, known) for each in wanted)
    resource.setrlimit(which, (most[0], most[1]))
