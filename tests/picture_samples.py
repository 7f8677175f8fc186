"""Small pictures of every kind, made here byte by byte: no library for pictures is needed."""

import struct
import zlib


def png(width: int = 4, height: int = 3, filling: bytes = b"") -> bytes:
    """A complete PNG, all red; `filling` makes it larger without changing what it shows."""
    rows = (b"\0" + b"\xff\0\0" * width) * height if width * height < 1 << 20 else b""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"tEXt", filling), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*each) for each in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def gif(width: int = 4, height: int = 3) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(10)


def jpeg(width: int = 4, height: int = 3, *, before: bytes = b"") -> bytes:
    """The beginning of a JPEG; `before` is placed between its start and its frame."""
    frame = b"\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + bytes(12)
    return b"\xff\xd8\xff\xe0\x00\x10JFIF\0" + bytes(9) + before + frame


def segment(size: int) -> bytes:
    """A segment of a JPEG that holds nothing of use, as cameras write many."""
    return b"\xff\xe1" + struct.pack(">H", size) + bytes(size - 2)


def webp(form: bytes, width: int = 4, height: int = 3) -> bytes:
    """The beginning of a WebP in one of its forms: `VP8 `, `VP8L` or `VP8X`."""
    if form == b"VP8X":
        size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        body = bytes(4) + size
    elif form == b"VP8L":
        body = b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little") + bytes(8)
    else:
        body = b"\x10\x02\x00\x9d\x01\x2a" + struct.pack("<HH", width, height) + bytes(8)
    return b"RIFF" + bytes(4) + b"WEBP" + form + struct.pack("<I", len(body)) + body
