"""Bytes of a file become text, in pieces, without losing any of them.

UTF-8 is assumed; a byte that is none becomes one of the characters U+DC80 to U+DCFF, so encoding
with `surrogateescape` gives the file back. UTF-16 and UTF-32 are known by their byte order mark.
"""

import codecs
from collections.abc import Iterable, Iterator

__all__ = ["SAMPLE_BYTES", "decoded", "encoding_of", "is_utf8", "looks_binary"]

SAMPLE_BYTES = 8192
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1b"))
_MOST_CONTROLS = 0.1


def encoding_of(sample: bytes) -> str:
    """The encoding that the beginning of a file shows; the mark itself stays in the text."""
    return next((name for mark, name in _MARKS if sample.startswith(mark)), "utf-8")


def decoded(blocks: Iterable[bytes], encoding: str) -> Iterator[str]:
    """The text of consecutive blocks; only UTF-16 and UTF-32 can raise UnicodeDecodeError."""
    errors = "surrogateescape" if encoding == "utf-8" else "surrogatepass"
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    for block in blocks:
        yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def looks_binary(sample: bytes) -> bool:
    """Whether the beginning of a file holds a NUL or many other control characters."""
    if encoding_of(sample) != "utf-8":
        return False
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return b"\0" in sample or controls > _MOST_CONTROLS * len(sample)


def is_utf8(sample: bytes) -> bool:
    """Whether the beginning of a file is UTF-8; its last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return True
