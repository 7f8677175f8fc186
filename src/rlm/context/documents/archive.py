"""Read ZIP packages of XML parts: Office documents and EPUB books, which may be hostile."""

import os
import posixpath
import zipfile
from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers import expat

from rlm.context.documents.formats import Refused

__all__ = ["Archive"]

_MAX_PARTS = 100_000
_FREE_BYTES, _MAX_RATIO = 64 << 20, 200
"""A package may unpack to the first plus the second times its size; XML packs to a tenth."""

_MAX_DEPTH = 1_000
_READ_BYTES = 1 << 16
_OLD_FORMAT = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
_XML_SPACE = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"
"""What may come before the first `<` of an XML part: byte order marks, UTF-16, white space."""


class Archive:
    """An open package; no part that a library may parse declares an entity."""

    def __init__(self, file: BinaryIO) -> None:
        if file.read(len(_OLD_FORMAT)) == _OLD_FORMAT:
            raise Refused(
                "it is password-protected or in an older format; save it again without a "
                "password, in the format that its name implies"
            )
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        self._zip = zipfile.ZipFile(file)
        infos = self._zip.infolist()
        if len(infos) > _MAX_PARTS:
            raise Refused(f"it has more than {_MAX_PARTS:,} parts; pass its text instead")
        whole = sum(each.file_size for each in infos)
        if whole > _FREE_BYTES + _MAX_RATIO * size:
            raise Refused(f"it unpacks to {whole >> 20:,} MiB; pass part of it, or its text")
        self._infos = {each.filename: each for each in infos}
        self._by_lower = {name.lower(): name for name in reversed(self._infos)}
        if any(each.flag_bits & 1 for each in infos):
            raise Refused("it is password-protected; save it without a password")
        for name in self._infos:
            self._check(name)
        file.seek(0)

    def __contains__(self, name: str) -> bool:
        return name in self._infos

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._infos)

    def read(self, name: str) -> bytes:
        """Return a part; KeyError if there is none."""
        return self._zip.read(self._infos[name])

    def xml(self, name: str) -> Element:
        """Return the root of an XML part; KeyError if there is none."""
        if _is_drawing(name):
            raise Refused(
                f"it declares a picture as part of its text ({name[-200:]}); save it again"
            )
        return ElementTree.fromstring(self.read(name))  # noqa: S314 - it was checked for entities

    def related(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the parts that a part of an Office package refers to: id → (kind, name)."""
        folder, base = posixpath.split(name)
        try:
            root = self.xml(posixpath.join(folder, "_rels", f"{base}.rels"))
        except KeyError:
            return {}
        found = {}
        for each in root.iter(_RELATIONS):
            if each.get("TargetMode") != "External":
                kind = each.get("Type", "").rpartition("/")[2]
                target = posixpath.normpath(posixpath.join("/", folder, each.get("Target", "")))
                found[each.get("Id", "")] = (kind, self._known(target.removeprefix("/")))
        return found

    def resolve(self, base: str, reference: str) -> str:
        """Return the name of the part that a relative reference points to."""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(base), reference))
        return target if target in self._infos else self._known(unquote(target))

    def _known(self, target: str) -> str:
        """Return the name itself if the part exists, else one that differs only in case."""
        if target in self._infos:
            return target
        return self._by_lower.get(target.lower(), target)

    # -- checks ------------------------------------------------------------------------------

    def _check(self, name: str) -> None:
        """Refuse a part that is nested too deeply, or that declares entities."""
        if _is_drawing(name):
            return
        blocks = self._blocks(name)
        first = next(blocks, b"")
        if first.lstrip(_XML_SPACE)[:1] == b"<":
            _check_xml(first, blocks)

    def _blocks(self, name: str) -> Iterator[bytes]:
        with self._zip.open(self._infos[name]) as part:
            while block := part.read(_READ_BYTES):
                yield block


def _is_drawing(name: str) -> bool:
    """Whether a part is an SVG picture: they often declare entities, and are never read."""
    return name.lower().endswith(".svg")


def _check_xml(first: bytes, rest: Iterator[bytes]) -> None:
    parser, depth = expat.ParserCreate(), 0

    def start(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > _MAX_DEPTH:
            raise Refused("its parts are nested too deeply; pass its text instead")

    def end(*_: object) -> None:
        nonlocal depth
        depth -= 1

    def entity(*_: object) -> None:
        raise Refused(
            "it declares XML entities, which documents of this kind never need; save it again"
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(first, False)
        for block in rest:
            parser.Parse(block, False)
    except expat.ExpatError:
        return  # Not XML after all, or damaged: its reader reports that if it matters.
