"""Bytes of a journal behind a checksum: SQLite does not notice a changed word in a text."""

from zlib import crc32

__all__ = ["sealed", "unsealed"]

_CHECKSUM_BYTES = 4


def sealed(name: str, data: bytes) -> bytes:
    """The same bytes, with a checksum of them and of what they are called before them."""
    return crc32(data, crc32(name.encode())).to_bytes(_CHECKSUM_BYTES, "big") + data


def unsealed(name: object, found: object) -> bytes:
    """What `sealed` was given under this name; ValueError if it is not what it was."""
    if not isinstance(found, bytes) or not isinstance(name, str):
        raise ValueError("something else stands where a text was")
    data = found[_CHECKSUM_BYTES:]
    if _checksum(name, data) != found[:_CHECKSUM_BYTES]:
        raise ValueError(f"the checksum of {name[:80]!r} does not match")
    return data


def _checksum(name: str, data: bytes) -> bytes:
    named = crc32(name.encode("utf-8", "surrogatepass"))
    return crc32(data, named).to_bytes(_CHECKSUM_BYTES, "big")
