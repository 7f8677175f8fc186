"""Creates the value of a context from a file in shared memory.

If this Python allows it, the value uses the shared pages themselves; otherwise they are copied
into ordinary objects. The only difference is in memory use.
"""

from __future__ import annotations

import json
import mmap

from . import tagged
from .forms import FORMS, SHORT, UCS_2, WIDTHS, Table

__all__ = ["be_told", "is_supported", "value_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CODECS = ("ascii", "latin-1", "utf-16-le", "utf-32-le")
_BLOCK_BYTES = 1 << 20
_supported: bool | None = None


def is_supported() -> bool:
    """Return whether this Python passes the self-test; call this once before forking."""
    global _supported
    if _supported is None:
        from .selftest import passes

        _supported = passes()
    return _supported


def be_told(supported: bool) -> bool:
    """Set the result of a self-test in another process; load modules while files are available."""
    global _supported
    if supported:
        from . import mapped  # noqa: F401
    _supported = supported
    return supported


def value_of(fd: int, layout: dict[str, Any], *, zero_copy: bool | None = None) -> Any:
    """Return the context in the file `fd`, which may be closed afterwards; see `forms.py`.

    `zero_copy` is for tests: False copies, None does what this Python supports.
    """
    if zero_copy is None:
        zero_copy = is_supported()
    kind = layout["kind"]
    if kind == "bytes":
        return _bytes(fd, layout["size"], zero_copy)
    if kind == "texts":
        return _texts(fd, layout, zero_copy)
    if kind not in {"text", "json", "tagged_json"}:
        raise ValueError(f"a shared context can't be of kind {kind!r}")
    text = _text(fd, FORMS.index(layout["form"]), layout["chars"], zero_copy)
    if kind == "tagged_json":
        return tagged.loads(text)
    return json.loads(text) if kind == "json" else text


def _bytes(fd: int, size: int, zero_copy: bool) -> bytes:
    if zero_copy and size > 1:
        from .mapped import map_bytes

        return map_bytes(fd, size)
    return _read(fd, 0, size)


def _text(fd: int, form: int, chars: int, zero_copy: bool) -> str:
    if zero_copy and chars > 1:
        from .mapped import map_text

        return map_text(fd, form, chars)
    return _decoded(_read(fd, 0, chars * WIDTHS[form]), form)


def _texts(fd: int, layout: dict[str, Any], zero_copy: bool) -> list[str] | dict[str, str]:
    count = layout["count"]
    table = Table.parse(_read(fd, layout["table"], 17 * count), count)
    if zero_copy:
        from .mapped import map_texts

        texts = map_texts(fd, table)
    else:
        texts = _copied_texts(fd, table)
    if layout["names"] is None:
        return texts
    encoded = _read(fd, layout["names"], layout["names_bytes"])
    names = json.loads(encoded.decode("utf-8", "surrogatepass"))
    return dict(zip(names, texts))  # noqa: B905 (not in 3.9)


def _copied_texts(fd: int, table: Table) -> list[str]:
    texts = []
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as file:
        for position, form in enumerate(table.forms):
            if form == SHORT:
                texts.append(table.short_text(position))
            else:
                start = table.offsets[position]
                end = start + table.chars[position] * WIDTHS[form]
                texts.append(_decoded(file[start:end], form))
    return texts


def _read(fd: int, offset: int, size: int) -> bytes:
    with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as file:
        if offset + size > len(file):
            raise ValueError("the file of a shared context is too short")
        return file[offset : offset + size]


def _decoded(data: bytes, form: int) -> str:
    if form != UCS_2:
        return data.decode(_CODECS[form], "surrogatepass")
    blocks = range(0, len(data), _BLOCK_BYTES)
    return "".join([_decoded_ucs_2(data[at : at + _BLOCK_BYTES]) for at in blocks])


def _decoded_ucs_2(data: bytes) -> str:
    """Decode two bytes per character; UTF-16 would join two adjacent surrogates."""
    text = data.decode("utf-16-le", "surrogatepass")
    if 2 * len(text) == len(data):
        return text
    wide = bytearray(2 * len(data))
    wide[0::4] = data[0::2]
    wide[1::4] = data[1::2]
    return wide.decode("utf-32-le", "surrogatepass")
