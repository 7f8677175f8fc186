"""Text of Word documents: headings, lists, tables, notes, comments, and equations as LaTeX."""

import importlib
import io
import zipfile
from typing import Any, BinaryIO
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from rlm.context.documents import equations
from rlm.context.documents.archive import Archive
from rlm.context.documents.html import markdown_of

__all__ = ["text_of"]

_SPACE = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_STYLES = "comment-reference => sup"
"""A rule for mammoth, which omits comments unless a rule says where to put them."""


def text_of(file: BinaryIO) -> str:
    """Return the text of a document."""
    mammoth = importlib.import_module("mammoth")
    archive = Archive(file)
    found = mammoth.convert_to_html(
        _prepared(archive),
        style_map=_STYLES,
        include_embedded_style_map=False,
        convert_image=mammoth.images.img_element(_no_source),
    )
    text = markdown_of(str(found.value))
    return "\n\n".join(each for each in (text, *_margins(archive)) if each)


def _margins(archive: Archive) -> list[str]:
    """Return the headers and footers of pages, each once; mammoth omits them."""
    mains = [name for kind, name in archive.related("").values() if kind == "officeDocument"]
    found: dict[str, None] = {}
    for kind, name in archive.related(mains[0]).values() if mains else ():
        if kind in {"header", "footer"} and name in archive:
            paragraphs = archive.xml(name).iter(f"{_SPACE}p")
            texts = (
                "".join(each.text or "" for each in paragraph.iter(f"{_SPACE}t"))
                for paragraph in paragraphs
            )
            words = " ".join(" ".join(texts).split())
            if words:
                found[f"**{kind.capitalize()}:** {words}"] = None
    return list(found)


def _no_source(image: Any) -> dict[str, str]:
    return {"src": ""}


def _prepared(archive: Archive) -> io.BytesIO:
    """Return a package that mammoth can read: without pictures, with equations as text."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as package:
        for name in archive.names:
            if name.lower().endswith((".xml", ".rels")):
                package.writestr(name, _repaired(archive, name))
    made.seek(0)
    return made


def _repaired(archive: Archive, name: str) -> bytes:
    data = archive.read(name)
    if name.lower().endswith("styles.xml"):
        return _with(data, _repair_styles)
    if b"oMath" in data or b"dstrike" in data:
        return _with(data, _repair_text)
    return data


def _with(data: bytes, repair: Any) -> bytes:
    root = ElementTree.fromstring(data)  # noqa: S314 - the archive was checked for entities
    repair(root)
    return bytes(ElementTree.tostring(root, "utf-8"))


def _repair_styles(root: Element) -> None:
    """Give styles the attributes that mammoth requires although the format does not."""
    for number, style in enumerate(root.iter(f"{_SPACE}style")):
        for name, value in (("type", "paragraph"), ("styleId", f"unnamed{number}")):
            if f"{_SPACE}{name}" not in style.attrib:
                style.set(f"{_SPACE}{name}", value)


def _repair_text(root: Element) -> None:
    """Write equations as runs of text, and double strikethrough as single."""
    for parent in list(root.iter()):
        if parent.tag == f"{_SPACE}dstrike":
            parent.tag = f"{_SPACE}strike"
        for index, child in enumerate(parent):
            if child.tag == equations.EQUATION_PARAGRAPH:
                found = [equations.latex(each) for each in child.iter(equations.EQUATION)]
                parent[index] = _run(" ".join(f"$${each}$$" for each in found), child.tail)
            elif child.tag == equations.EQUATION:
                parent[index] = _run(f"${equations.latex(child)}$", child.tail)


def _run(text: str, tail: str | None) -> Element:
    run = Element(f"{_SPACE}r")
    run.tail = tail
    ElementTree.SubElement(run, f"{_SPACE}t").text = text
    return run
