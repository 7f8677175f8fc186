"""Records of a journal: replies and texts behind a checksum, and the file of recent replies.

A record that has changed or is incomplete is left out; its reply is requested again.
"""

import functools
import json
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import msgspec

from rlm._util import files
from rlm.calls.billing import checked_usage
from rlm.messages import Reply, ReplyKey

__all__ = [
    "HEAD_BYTES",
    "Tail",
    "end_of",
    "packed",
    "places_in",
    "private",
    "sealed",
    "tail_of",
    "unpacked",
    "unsealed",
]


def private(path: str | Path, flags: int) -> int:
    """Open a file for its owner only; refuse links, since they may lead anywhere."""
    return os.open(path, flags | files.NOFOLLOW | files.BINARY, 0o600)


_CHECKSUM_BYTES = 4


def sealed(name: str, data: bytes) -> bytes:
    """Return the bytes behind a checksum of their name and content."""
    return crc32(data, crc32(name.encode())).to_bytes(_CHECKSUM_BYTES, "big") + data


def unsealed(name: object, found: object) -> bytes:
    """Return what `sealed` was given under this name; raise ValueError if it has changed."""
    if not isinstance(found, bytes) or not isinstance(name, str):
        raise ValueError("something else is where a text was")
    data = found[_CHECKSUM_BYTES:]
    if _checksum(name, data) != found[:_CHECKSUM_BYTES]:
        raise ValueError(f"the checksum of {name[:80]!r} does not match")
    return data


def _checksum(name: str, data: bytes) -> bytes:
    named = crc32(name.encode("utf-8", "surrogatepass"))
    return crc32(data, named).to_bytes(_CHECKSUM_BYTES, "big")


_SIZE_BYTES = 4
HEAD_BYTES = 8
_HEAD = struct.Struct(">II").pack  # Of a body: its size, its checksum.
_PACK = msgspec.msgpack.Encoder().encode
_READ = msgspec.msgpack.Decoder(tuple[str, str, int, str, int, Reply | bytes])


def packed(key: ReplyKey, reply: Reply) -> bytes:
    """Return the record of a reply."""
    try:
        body = _PACK((key.path, key.digest, key.number, key.kind, key.step, reply))
    except UnicodeEncodeError:  # lone surrogates: JSON can escape them, MessagePack can't
        escaped = json.dumps(msgspec.to_builtins(reply)).encode("ascii")
        body = _PACK((key.path, key.digest, key.number, key.kind, key.step, escaped))
    return _HEAD(len(body), crc32(body)) + body


def unpacked(body: bytes) -> tuple[ReplyKey, Reply]:
    """Return what a record holds; raise ValueError if it cannot be read."""
    path, digest, number, kind, step, reply = _READ.decode(body)
    if isinstance(reply, bytes):
        reply = msgspec.convert(json.loads(reply), Reply)
    return ReplyKey(path, digest, number, kind, step), _checked(kind, reply)


def _checked(kind: str, reply: Reply) -> Reply:
    """Return a reply that says what it cost; raise ValueError if that is not possible.

    The checksum protects against damage, not against an author: a negative cost would refill the
    budget of the run that continues.
    """
    if reply.usage is not None:
        usage = checked_usage(reply.usage)
        if usage is None:
            raise ValueError("its usage is not possible")
        reply = msgspec.structs.replace(reply, usage=usage)
    if kind == "child":
        from rlm.engine.children import Spent

        msgspec.convert(reply.opaque, Spent)
    return reply


def end_of(records: bytes) -> int:
    """Return where the last complete record ends; zeros or old bytes may follow."""
    at = 0
    while at + HEAD_BYTES <= len(records):
        end = at + HEAD_BYTES + int.from_bytes(records[at : at + _SIZE_BYTES], "big")
        if end == at + HEAD_BYTES or end > len(records):
            break
        at = end
    return at


def places_in(records: object) -> Iterator[tuple[int, int]]:
    """Yield the positions of intact bodies, up to the first torn one."""
    if not isinstance(records, bytes):
        return
    at = 0
    while at + HEAD_BYTES <= len(records):
        start = at + HEAD_BYTES
        end = start + int.from_bytes(records[at : at + _SIZE_BYTES], "big")
        if end > len(records):
            return
        if crc32(records[start:end]).to_bytes(4, "big") == records[at + _SIZE_BYTES : start]:
            yield start, end
        at = end


ROOM_BYTES = 1 << 18
_END = bytes(4)
_KEEPS_WHAT_IT_GAVE = {"ext2", "ext3", "ext4", "tmpfs", "xfs"}
"""File systems that reliably keep the room that `fallocate` has given. On others, a full disk could
end the process that touches the mapping."""


def tail_of(path: Path) -> Path:
    return path.with_suffix(".tail")


class Tail:
    """Records on their way into a journal. The holder of the journal's lock owns the file."""

    def __init__(self, path: Path) -> None:
        self._path = tail_of(path)
        self._fd = private(self._path, os.O_RDWR | os.O_CREAT)
        self._end = 0
        self._map: mmap.mmap | None = None

    def records(self) -> bytes:
        """Return the complete records that another process left; call this before adding any."""
        found = self._path.read_bytes()
        return found[: end_of(found)]

    def open(self) -> None:
        """Empty it, and prepare it for records."""
        os.ftruncate(self._fd, 0)
        if _file_system(os.fstat(self._fd).st_dev) in _KEEPS_WHAT_IT_GAVE:
            with suppress(OSError):  # No room for all of it; there may be some for less.
                os.posix_fallocate(self._fd, 0, ROOM_BYTES)
                self._map = mmap.mmap(self._fd, ROOM_BYTES)

    def add(self, record: bytes) -> bool:
        """Commit a record; return False, and do nothing, if there is no room.

        Raises OSError if the disk is full.
        """
        start = self._end
        end = start + len(record)
        if end + len(_END) > ROOM_BYTES:
            return False
        if self._map is None:
            if files.write_at(self._fd, record, start) != len(record):
                os.ftruncate(self._fd, start)
                return False
        else:
            self._map[start + HEAD_BYTES : end + len(_END)] = record[HEAD_BYTES:] + _END
            self._map[start : start + HEAD_BYTES] = record[:HEAD_BYTES]
        self._end = end
        return True

    def clear(self) -> None:
        """Empty it: its records are in the database now."""
        self._end = 0
        if self._map is None:
            os.ftruncate(self._fd, 0)
        else:
            self._map[: len(_END)] = _END

    def close(self) -> None:
        """Remove it if it is empty; may be called twice."""
        if self._fd < 0:
            return
        is_empty = not self._end and not self.records()
        if self._map is not None:
            self._map.close()
            self._map = None
        os.close(self._fd)
        self._fd = -1
        if is_empty:
            self._path.unlink(missing_ok=True)  # Last: Windows can't remove an open file.


@functools.lru_cache(maxsize=16)
def _file_system(device: int) -> str:
    """Return the kind of a device's file system; empty if unknown."""
    if sys.platform != "linux":
        return ""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines():
            about, _, source = line.partition(" - ")
            if about.split(maxsplit=3)[2] == wanted:
                return source.split(maxsplit=1)[0]
    return ""
