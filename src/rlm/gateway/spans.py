"""A bounded piece of a file: never more than so many lines and bytes, whatever is asked for."""

import hashlib
import os

from msgspec import Struct

from rlm.gateway.lines import LineIndex
from rlm.gateway.refusals import Refused

__all__ = ["MOST_BYTES", "MOST_LINES", "Span", "read_span"]

MOST_LINES = 200
MOST_BYTES = 8_192
SNIFFED_BYTES = 8_192
_LONGEST_CHARACTER = 4


class Span(Struct, frozen=True):
    """What was read: whole lines, or the part of a long one. `end_line` is included.

    `next_offset` is where the rest begins, None at the end of the file. `sha256` is that of the
    bytes as they are in the file. `lossy`: some are no UTF-8 and are shown as `\ufffd`.
    """

    text: str
    start_line: int
    end_line: int
    start_offset: int
    end_offset: int
    next_offset: int | None
    sha256: str
    lossy: bool = False


def read_span(
    fd: int,
    index: LineIndex,
    *,
    start_line: int | None = None,
    offset: int | None = None,
    lines: int = MOST_LINES,
    most_bytes: int = MOST_BYTES,
) -> Span:
    """From a line, or from an offset that an earlier span told, as far as the limits allow."""
    start = _start(fd, index, start_line, offset)
    lines = max(1, min(lines, MOST_LINES))
    most = max(_LONGEST_CHARACTER, min(most_bytes, MOST_BYTES))
    data = os.pread(fd, min(most + 1, index.size_bytes - start), start)
    if b"\0" in data[:SNIFFED_BYTES]:
        raise Refused("this is no text: there are NUL bytes in it")
    is_cut = len(data) > most
    data = _whole_lines(data[:most], lines, is_cut)
    end = start + len(data)
    first = index.line_at(fd, start)
    text, lossy = _decoded(data)
    return Span(
        text=text,
        start_line=first,
        end_line=first + data[:-1].count(b"\n"),
        start_offset=start,
        end_offset=end,
        next_offset=end if end < index.size_bytes else None,
        sha256=hashlib.sha256(data).hexdigest(),
        lossy=lossy,
    )


def _start(fd: int, index: LineIndex, start_line: int | None, offset: int | None) -> int:
    if offset is not None:
        if not 0 <= offset < max(1, index.size_bytes):
            raise Refused(
                f"there is nothing at {offset:,}: the file has {index.size_bytes:,} bytes"
            )
        return offset
    start = index.offset_of(fd, 1 if start_line is None else start_line)
    if start is None:
        if not index.size_bytes:
            return 0
        raise Refused(f"there is no line {start_line}: the file has {index.count(fd):,} lines")
    return start


def _whole_lines(data: bytes, lines: int, is_cut: bool) -> bytes:
    """As many lines as wanted; of one that is longer than the limit, whole characters of it."""
    at = -1
    for _ in range(lines):
        following = data.find(b"\n", at + 1)
        if following < 0:
            break
        at = following
    else:
        return data[: at + 1]
    if not is_cut:
        return data
    return data[: at + 1] if at >= 0 else _whole_characters(data)


def _whole_characters(data: bytes) -> bytes:
    """Without the beginning of a character whose end is missing."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            needed = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            return data[:-back] if needed > back and len(data) > back else data
    return data


def _decoded(data: bytes) -> tuple[str, bool]:
    try:
        return data.decode("utf-8"), False
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), True
