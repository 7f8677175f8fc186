"""Read one file, or several files joined, as a context."""

import json
from pathlib import Path

from rlm._util.limited import check_wanted
from rlm._util.text import counted
from rlm.context.describe import ListShape, describe, describe_text
from rlm.context.documents import Converter, DocumentError
from rlm.context.gathering import Gathered
from rlm.context.parts import (
    FilePart,
    FileTexts,
    HeldText,
    JsonLinesPart,
    MemoryPart,
    Part,
    Text,
    TextPart,
    wire,
)
from rlm.context.pictures import (
    describe_picture,
    describe_pictures,
    looks_like_picture,
    read_picture,
)
from rlm.context.scanning import TABLES, Tally, describe_files, describe_table, scan_text
from rlm.context.stored import StoredContext
from rlm.data.files import format_of
from rlm.data.filesystem import skipping
from rlm.data.filesystem.opening import (
    SAMPLE_BYTES,
    Stamp,
    display_path,
    encoding_of,
    head_of,
    is_utf8,
    looks_binary,
)
from rlm.data.filesystem.skipping import Skipped
from rlm.errors import ConfigError
from rlm.images import MAX_IMAGE_BYTES, Picture

__all__ = ["store_file", "store_files"]

MAX_JSON_BYTES = 64 << 20
"""A larger .json file stays text: parsing it would need all of it in memory."""

JSON_LINES = frozenset((".jsonl", ".ndjson"))


class _StaysText(Exception):
    """The file is not what its suffix says."""


def store_file(path: Path) -> StoredContext:
    """Store the contents of a file; a large file is read again whenever a session needs it."""
    head, stamp = head_of(path, SAMPLE_BYTES)
    suffix = path.suffix.lower()
    if (text := Converter().text_of(path)) is not None:
        return _document(text, path)
    if looks_binary(head) and not is_utf8(head):
        return _binary(path, stamp, head)
    remark = ""
    try:
        if head and suffix == ".json":
            return _json(path, stamp, head)
        if head and suffix in JSON_LINES:
            return _json_lines(path, stamp, head)
    except _StaysText as reason:
        remark = f"{display_path(path)} is text in the REPL: {reason}"
    return _text(path, stamp, head, remark)


def _text(path: Path, stamp: Stamp, head: bytes, remark: str) -> StoredContext:
    part, tally, count = scan_text(path, stamp, head, Tally())
    suffix = path.suffix.lower()
    structure = describe_table(suffix, count) if suffix in TABLES else None
    if not count.chars:
        remark = f"{display_path(path)} is empty"
    return StoredContext(
        "text",
        [part],
        describe_text(count.chars, count.lines, count.sample, structure),
        size_bytes=tally.size_bytes,
        sha256=tally.sha256,
        remarks=(remark,) if remark else (),
        name=path.name,
    )


def _document(text: str, path: Path) -> StoredContext:
    kind = path.suffix.lower()
    description = f"{describe(text).removesuffix('.')}; the text of a {kind} document."
    return StoredContext("text", wire(text), description, name=path.name)


def _binary(path: Path, stamp: Stamp, head: bytes) -> StoredContext:
    """Store bytes; a picture can be shown to a model directly, or by the file's name."""
    part, tally = FilePart(path, stamp), Tally()
    for block in part.blocks():
        tally.add(block)
    picture = read_picture(path, stamp) if looks_like_picture(head) else None
    if picture is None:
        description = f"bytes, {counted(tally.size_bytes, 'byte')}."
        remark = f"{display_path(path)} is not text: it is bytes in the REPL"
    else:
        description = describe_picture(picture, "context")
        remark = (
            f"{display_path(path)} is a picture: only a model that accepts images can look at it"
        )
    return StoredContext(
        "bytes",
        [part],
        description,
        size_bytes=tally.size_bytes,
        sha256=tally.sha256,
        pictures={} if picture is None else {path.name: picture},
        remarks=(remark,),
    )


def _json(path: Path, stamp: Stamp, head: bytes) -> StoredContext:
    """Store a JSON file as its text, which the worker parses as we do; it stays in memory."""
    if stamp.size > MAX_JSON_BYTES:
        raise _StaysText(f"it is larger than {MAX_JSON_BYTES >> 20} MiB")
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
        "json", [part], shape.description(), size_bytes=tally.size_bytes, sha256=tally.sha256
    )


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def store_files(gathered: Gathered) -> StoredContext:
    """Store gathered files; unreadable ones are skipped, unless the caller named them."""
    blob = _Blob()
    skipped = gathered.skipped()
    for name, path in gathered.named_files():
        check_wanted()
        asked = gathered.asked[path]
        reason = blob.add(name, path, asked=asked)
        if reason is not None and asked:
            raise ConfigError(
                f"{display_path(path)} can't be read beside other files: it is a {reason}"
                f"{skipping.advice(reason)}; pass it alone, or leave it out"
            )
        if reason is not None:
            skipped.append(Skipped(name, reason))
    skipped.sort()
    clause = skipping.clause(skipped)
    if not blob.names and not blob.pictures:
        why = "; ".join(skipping.left_out(skipped))
        raise ConfigError(f"{gathered.what} contains no text" + (f": {why}" if why else ""))
    blob.close()
    description = (
        describe_files(blob.names, blob.chars) if blob.names else "an empty dict: there is no text."
    )
    texts = tuple(zip(blob.names, blob.texts, strict=True))
    return StoredContext(
        "json",
        blob.parts,
        description + describe_pictures(blob.pictures) + clause,
        size_bytes=blob.tally.size_bytes,
        sha256=blob.tally.sha256,
        texts=FileTexts(texts) if texts else None,
        documents=tuple(blob.names),
        pictures=blob.pictures,
        skipped=tuple(skipped),
        remarks=(*gathered.remarks, *blob.remarks),
    )


class _Blob:
    """A JSON object of texts under construction."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.parts: list[Part] = []
        self.texts: list[Text] = []
        self.pictures: dict[str, Picture] = {}
        self.remarks: list[str] = []
        self.chars = 0
        self.tally = Tally()
        self._converter = Converter()

    def add(self, name: str, path: Path, *, asked: bool) -> str | None:
        """Add a file, or return why it is skipped."""
        try:
            head, stamp = head_of(path, SAMPLE_BYTES)
            text = self._converter.text_of(path)
        except DocumentError as error:
            if asked:
                raise
            if error.reason == skipping.FAILED:
                self.remarks.append(str(error))
            return error.reason
        except ConfigError:
            if asked:
                raise
            return skipping.UNREADABLE
        if text is not None:
            self._add_text(name, text)
            return None
        if looks_binary(head):
            return self._add_picture(name, path, stamp, head, asked=asked)
        opening, tally = self._opening(name)
        part, self.tally, count = scan_text(path, stamp, head, tally, in_json=True)
        assert isinstance(part, TextPart)  # an empty file is not JSON
        self._note(name, opening, part, count.chars)
        return None

    def close(self) -> None:
        end = b'"}' if self.names else b"{}"
        self.parts.append(MemoryPart(end))
        self.tally.add(end)

    def _add_picture(
        self, name: str, path: Path, stamp: Stamp, head: bytes, *, asked: bool
    ) -> str | None:
        if not looks_like_picture(head):
            return skipping.BINARY if format_of(head) is None else skipping.TABLE
        if stamp.size > MAX_IMAGE_BYTES:
            return skipping.OVERSIZED
        try:
            picture = read_picture(path, stamp)
        except ConfigError:
            if asked:
                raise
            return skipping.UNREADABLE
        if picture is None:
            return skipping.BINARY
        self.pictures[name] = picture
        return None

    def _add_text(self, name: str, text: str) -> None:
        opening, self.tally = self._opening(name)
        held = HeldText(text, in_json=True)
        for block in held.blocks():
            self.tally.add(block)
        self._note(name, opening, held, len(text))

    def _note(self, name: str, opening: bytes, text: Text, chars: int) -> None:
        self.parts += [MemoryPart(opening), text]
        self.texts.append(text)
        self.chars += chars
        self.names.append(name)

    def _opening(self, name: str) -> tuple[bytes, Tally]:
        """Return the bytes that precede a text, and a tally that continues after them."""
        before = '", ' if self.names else "{"
        opening = wire(f'{before}{json.dumps(name, ensure_ascii=False)}: "')
        tally = self.tally.copy()
        tally.add(opening)
        return opening, tally
