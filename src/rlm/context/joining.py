"""Several files become one dict, name to text; it travels as JSON and is never held as a whole.

Pictures among them are not in the dict: they are listed beside it, by the same names.
"""

import json
from pathlib import Path

from rlm._util.limited import check_wanted
from rlm.context import skipping
from rlm.context.decode import SAMPLE_BYTES, looks_binary
from rlm.context.describe_files import told_files
from rlm.context.documents import Converter, DocumentError
from rlm.context.gathering import Gathered
from rlm.context.opening import Stamp, head_of
from rlm.context.parts import FileTexts, HeldText, MemoryPart, Part, Text, TextPart, wire
from rlm.context.picturing import looks_like_picture, read_picture, told_pictures
from rlm.context.scanning import Tally, scan_text
from rlm.context.skipping import Skipped
from rlm.context.stored import StoredContext
from rlm.errors import ConfigError
from rlm.images import MAX_IMAGE_BYTES, Picture

__all__ = ["store_files"]


def store_files(gathered: Gathered) -> StoredContext:
    """Store what was gathered; what can't be read is left out, unless the caller named it."""
    blob = _Blob()
    skipped = gathered.skipped()
    for name, path in gathered.named():
        check_wanted()
        reason = blob.add(name, path, asked=gathered.asked[path])
        if reason is not None:
            skipped.append(Skipped(name, reason))
    skipped.sort()
    clause = skipping.clause(skipped)
    if not blob.names and not blob.pictures:
        raise ConfigError(f"there is no text in {gathered.what}.{clause}".removesuffix("."))
    blob.close()
    told = told_files(blob.names, blob.chars) if blob.names else "an empty dict: there is no text."
    texts = tuple(zip(blob.names, blob.texts, strict=True))
    return StoredContext(
        "json",
        blob.parts,
        told + told_pictures(blob.pictures) + clause,
        size_bytes=blob.tally.size_bytes,
        sha256=blob.tally.sha256,
        texts=FileTexts(texts) if texts else None,
        documents=tuple(blob.names),
        pictures=blob.pictures,
        skipped=tuple(skipped),
        remarks=(*gathered.remarks, *blob.remarks),
    )


class _Blob:
    """A JSON object of texts, in the making."""

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
        """Add a file, or say why it is left out."""
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
        assert isinstance(part, TextPart)  # nothing can be JSON as it is
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
            return skipping.BINARY
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
        """What stands before a text, with a tally that goes on from there."""
        before = '", ' if self.names else "{"
        opening = wire(f'{before}{json.dumps(name, ensure_ascii=False)}: "')
        tally = self.tally.copy()
        tally.add(opening)
        return opening, tally
