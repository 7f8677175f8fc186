"""Text of EPUB books: their metadata, then their chapters in reading order."""

from typing import BinaryIO
from xml.etree.ElementTree import Element

from rlm.context.documents.archive import Archive
from rlm.context.documents.formats import Refused
from rlm.context.documents.html import markdown_of

__all__ = ["text_of"]

_ROOT_FILE = "{urn:oasis:names:tc:opendocument:xmlns:container}rootfile"
_METADATA = ("title", "creator", "language", "publisher", "date", "description", "identifier")
_NAMES = {"creator": "Authors"}


def text_of(file: BinaryIO) -> str:
    """Return the text of a book."""
    archive = Archive(file)
    roots = [each.get("full-path", "") for each in _container(archive)]
    if not roots:
        raise ValueError("META-INF/container.xml names no book")
    book = archive.resolve("", roots[0])
    package = archive.xml(book)
    encrypted = _encrypted(archive)
    texts = [_about(package)]
    for name in _spine(archive, book, package):
        if name in encrypted:
            raise Refused("its chapters are encrypted (DRM); pass an unprotected copy")
        found = name in archive
        texts.append(markdown_of(archive.read(name)) if found else f"[{name} is missing]")
    return "\n\n".join(each for each in texts if each)


def _container(archive: Archive) -> list[Element]:
    return list(archive.xml("META-INF/container.xml").iter(_ROOT_FILE))


def _spine(archive: Archive, book: str, package: Element) -> list[str]:
    """Return the files of the chapters; the spine refers to the manifest, which lists them."""
    items = {each.get("id"): each.get("href", "") for each in _named(package, "item")}
    references = [each.get("idref") for each in _named(package, "itemref")]
    return [archive.resolve(book, items[each]) for each in references if each in items]


def _encrypted(archive: Archive) -> set[str]:
    """Return the names of encrypted parts; often only fonts are."""
    if "META-INF/encryption.xml" not in archive:
        return set()
    references = _named(archive.xml("META-INF/encryption.xml"), "CipherReference")
    return {archive.resolve("", each.get("URI", "")) for each in references}


def _about(package: Element) -> str:
    lines = []
    for name in _METADATA:
        texts = ["".join(each.itertext()).strip() for each in _named(package, name)]
        texts = [text for text in texts if text]
        if texts:
            shown = ", ".join(texts) if name == "creator" else texts[0]
            lines.append(f"**{_NAMES.get(name, name.capitalize())}:** {shown}")
    return "\n".join(lines)


def _named(package: Element, name: str) -> list[Element]:
    """Return elements by their local name: the namespaces of old books differ."""
    return [each for each in package.iter() if each.tag.rpartition("}")[2] == name]
