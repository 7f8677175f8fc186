"""Replies as they stand in a journal: one record behind the other, each with its checksum.

A record that is not what it was, or only half there, is left out; its reply is asked for again.
"""

import json
import struct
from collections.abc import Iterator
from zlib import crc32

import msgspec

from rlm.messages import Reply, ReplyKey

__all__ = ["HEAD_BYTES", "end_of", "packed", "places_in", "unpacked"]

_SIZE_BYTES = 4
HEAD_BYTES = 8
_HEAD = struct.Struct(">II").pack  # Of a body: its size, its checksum.
_PACK = msgspec.msgpack.Encoder().encode
_READ = msgspec.msgpack.Decoder(tuple[str, str, int, str, int, Reply | bytes])


def packed(key: ReplyKey, reply: Reply) -> bytes:
    """The record of a reply."""
    try:
        body = _PACK((key.path, key.digest, key.number, key.kind, key.step, reply))
    except UnicodeEncodeError:  # lone surrogates: JSON can escape them, MessagePack can't
        escaped = json.dumps(msgspec.to_builtins(reply)).encode("ascii")
        body = _PACK((key.path, key.digest, key.number, key.kind, key.step, escaped))
    return _HEAD(len(body), crc32(body)) + body


def unpacked(body: bytes) -> tuple[ReplyKey, Reply]:
    """What a record holds; ValueError if it can't be read."""
    path, digest, number, kind, step, reply = _READ.decode(body)
    if isinstance(reply, bytes):
        reply = msgspec.convert(json.loads(reply), Reply)
    return ReplyKey(path, digest, number, kind, step), reply


def end_of(records: bytes) -> int:
    """Where the last whole record ends; behind it there may be zeros, and what was there before."""
    at = 0
    while at + HEAD_BYTES <= len(records):
        end = at + HEAD_BYTES + int.from_bytes(records[at : at + _SIZE_BYTES], "big")
        if end == at + HEAD_BYTES or end > len(records):
            break
        at = end
    return at


def places_in(records: object) -> Iterator[tuple[int, int]]:
    """Where the bodies are that are what they were; nothing behind a torn one."""
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
