"""One file: text is a str, JSON a value, a document its text, and what is no text bytes."""

import json
from pathlib import Path

from rlm.context.decode import SAMPLE_BYTES, encoding_of, is_utf8, looks_binary
from rlm.context.describe import ListShape, counted, describe, told
from rlm.context.describe_files import TABLES, told_table
from rlm.context.documents import Converter
from rlm.context.opening import Stamp, head_of, shown
from rlm.context.parts import FilePart, JsonLinesPart, TextPart, wire
from rlm.context.picturing import looks_like_picture, read_picture, told_picture
from rlm.context.scanning import Tally, scan_text
from rlm.context.stored import StoredContext

__all__ = ["store_file"]

MOST_JSON_BYTES = 64 << 20
"""A larger .json file stays text: whether it parses can't be known without holding all of it."""

JSON_LINES = frozenset((".jsonl", ".ndjson"))


class _StaysText(Exception):
    """A file that is not what its suffix says."""


def store_file(path: Path) -> StoredContext:
    """Store what a file holds; a large one is read anew whenever a session needs it."""
    head, stamp = head_of(path, SAMPLE_BYTES)
    suffix = path.suffix.lower()
    if (text := Converter().text_of(path)) is not None:
        return _document(text, suffix)
    if looks_binary(head) and not is_utf8(head):
        return _binary(path, stamp, head)
    remark = ""
    try:
        if head and suffix == ".json":
            return _json(path, stamp, head)
        if head and suffix in JSON_LINES:
            return _json_lines(path, stamp, head)
    except _StaysText as reason:
        remark = f"{shown(path)} is text in the REPL: {reason}"
    return _text(path, stamp, head, remark)


def _text(path: Path, stamp: Stamp, head: bytes, remark: str) -> StoredContext:
    part, tally, count = scan_text(path, stamp, head, Tally())
    suffix = path.suffix.lower()
    structure = told_table(suffix, count) if suffix in TABLES else None
    if not count.chars:
        remark = f"{shown(path)} is empty"
    return StoredContext(
        "text",
        [part],
        told(count.chars, count.lines, count.sample, structure),
        size_bytes=tally.size_bytes,
        sha256=tally.sha256,
        remarks=(remark,) if remark else (),
    )


def _document(text: str, suffix: str) -> StoredContext:
    description = f"{describe(text).removesuffix('.')}; the text of a {suffix} document."
    return StoredContext("text", wire(text), description)


def _binary(path: Path, stamp: Stamp, head: bytes) -> StoredContext:
    """Bytes; those of a picture can be shown to a model as they are, or by the file's name."""
    part, tally = FilePart(path, stamp), Tally()
    for block in part.blocks():
        tally.add(block)
    picture = read_picture(path, stamp) if looks_like_picture(head) else None
    if picture is None:
        told = f"bytes, {counted(tally.size_bytes, 'byte')}."
        remark = f"{shown(path)} is not text: it is bytes in the REPL"
    else:
        told = told_picture(picture, "context")
        remark = f"{shown(path)} is a picture: only a model that takes images can look at it"
    return StoredContext(
        "bytes",
        [part],
        told,
        size_bytes=tally.size_bytes,
        sha256=tally.sha256,
        pictures={} if picture is None else {path.name: picture},
        remarks=(remark,),
    )


def _json(path: Path, stamp: Stamp, head: bytes) -> StoredContext:
    """The file's own text travels, since the worker reads it as we do; it is kept in memory."""
    if stamp.size > MOST_JSON_BYTES:
        raise _StaysText(f"it is larger than {MOST_JSON_BYTES >> 20} MiB")
    try:
        text = "".join(TextPart(path, stamp, encoding_of(head)).pieces())
        text = text.removeprefix("\N{BYTE ORDER MARK}")
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _StaysText(f"it is not JSON ({_words(error)})") from error
    if not isinstance(value, (dict, list)):
        raise _StaysText("its JSON is neither an object nor an array")
    return StoredContext("json", wire(text), describe(value))


def _json_lines(path: Path, stamp: Stamp, head: bytes) -> StoredContext:
    part = JsonLinesPart(path, stamp, encoding_of(head))
    shape, tally = ListShape(), Tally()
    try:
        for block in part.blocks(lambda line: shape.add(json.loads(line))):
            tally.add(block)
    except (ValueError, RecursionError) as error:
        raise _StaysText(f"value {shape.count + 1:,} is not JSON ({_words(error)})") from error
    return StoredContext(
        "json", [part], shape.told(), size_bytes=tally.size_bytes, sha256=tally.sha256
    )


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
