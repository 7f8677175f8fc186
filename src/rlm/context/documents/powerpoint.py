"""Text of PowerPoint presentations: shapes, tables, charts, diagrams and notes of each slide."""

from collections.abc import Iterator
from typing import BinaryIO
from xml.etree.ElementTree import Element

from rlm.context.documents import equations
from rlm.context.documents.archive import Archive
from rlm.context.documents.tables import table

__all__ = ["text_of"]

_OFFICE = "http://schemas.openxmlformats.org"
_A = f"{{{_OFFICE}/drawingml/2006/main}}"
_C = f"{{{_OFFICE}/drawingml/2006/chart}}"
_P = f"{{{_OFFICE}/presentationml/2006/main}}"
_R = f"{{{_OFFICE}/officeDocument/2006/relationships}}"
_DIAGRAM = f"{{{_OFFICE}/drawingml/2006/diagram}}relIds"
_ALTERNATIVES = f"{{{_OFFICE}/markup-compatibility/2006}}AlternateContent"
_TITLES = ("title", "ctrTitle")


def text_of(file: BinaryIO) -> str:
    """Return the text of a presentation."""
    archive = Archive(file)
    main = next(
        (name for kind, name in archive.related("").values() if kind == "officeDocument"),
        "ppt/presentation.xml",
    )
    related = archive.related(main)
    listed = archive.xml(main).iterfind(f"{_P}sldIdLst/{_P}sldId")
    names = [related[each.get(f"{_R}id", "")][1] for each in listed]
    slides = [_Slide(archive, name) for name in names]
    texts = [slide.text() for slide in slides]
    if not any(texts):
        return ""
    return "\n\n".join(
        f"<!-- Slide number: {number}{slide.remark} -->\n\n{text}".strip()
        for number, (slide, text) in enumerate(zip(slides, texts, strict=True), start=1)
    )


class _Slide:
    def __init__(self, archive: Archive, name: str) -> None:
        self._archive = archive
        self._root = archive.xml(name)
        self._related = archive.related(name)

    @property
    def remark(self) -> str:
        return " (hidden)" if self._root.get("show") in {"0", "false"} else ""

    def text(self) -> str:
        parts: list[str] = []
        tree = self._root.find(f"{_P}cSld/{_P}spTree")
        if tree is not None:
            parts.extend(self._shapes(tree))
        notes = self._notes()
        if notes:
            parts.append(f"### Notes:\n{notes}")
        return "\n\n".join(part for part in parts if part.strip())

    def _shapes(self, tree: Element) -> Iterator[str]:
        """Yield the text of shapes in the order in which a screen reader reads them."""
        for shape in tree:
            if shape.tag == f"{_P}sp":
                yield _shape_text(shape)
            elif shape.tag == f"{_P}grpSp":
                yield from self._shapes(shape)
            elif shape.tag == f"{_P}pic":
                yield _picture(shape)
            elif shape.tag == f"{_P}graphicFrame":
                yield from self._graphic(shape)
            elif shape.tag == _ALTERNATIVES and len(shape):
                yield from self._shapes(shape[0])

    def _graphic(self, frame: Element) -> Iterator[str]:
        for found in frame.iter(f"{_A}tbl"):
            yield _table_text(found)
        for found in frame.iter(f"{_C}chart"):
            name = self._part(found.get(f"{_R}id"))
            if name:
                yield _chart_text(self._archive.xml(name))
        for found in frame.iter(_DIAGRAM):
            name = self._part(found.get(f"{_R}dm"))
            if name:
                texts = (_frame_text(each) for each in self._archive.xml(name).iter() if _has(each))
                yield "\n".join(text for text in texts if text.strip())

    def _notes(self) -> str:
        for kind, name in self._related.values():
            if kind == "notesSlide" and name in self._archive:
                shapes = self._archive.xml(name).iter(f"{_P}sp")
                texts = [_frame_text(each) for each in shapes if _placeholder(each) == "body"]
                return "\n".join(texts).strip()
        return ""

    def _part(self, relation: str | None) -> str | None:
        name = self._related.get(relation or "", ("", ""))[1]
        return name if name in self._archive else None


def _shape_text(shape: Element) -> str:
    text = _frame_text(shape)
    if _placeholder(shape) in _TITLES and text.strip():
        return f"# {' '.join(text.split())}"
    return text


def _placeholder(shape: Element) -> str | None:
    found = shape.find(f"{_P}nvSpPr/{_P}nvPr/{_P}ph")
    return None if found is None else found.get("type", "object")


def _has(element: Element) -> bool:
    """Return whether an element itself has paragraphs."""
    return element.find(f"{_A}p") is not None


def _frame_text(element: Element) -> str:
    """Return the paragraphs below an element, indented by their level."""
    lines = []
    for paragraph in element.iter(f"{_A}p"):
        properties = paragraph.find(f"{_A}pPr")
        level = 0 if properties is None else _number(properties.get("lvl"))
        text = "".join(_pieces(paragraph))
        lines.append("  " * level + text if text.strip() else "")
    return "\n".join(lines).strip("\n")


def _pieces(paragraph: Element) -> Iterator[str]:
    for child in paragraph:
        if child.tag in {f"{_A}r", f"{_A}fld"}:
            yield child.findtext(f"{_A}t", "")
        elif child.tag == f"{_A}br":
            yield "\n"
        elif child.tag == _ALTERNATIVES:
            yield from (f"${equations.latex(each)}$" for each in child.iter(equations.EQUATION))
        else:
            found = child.iter(equations.EQUATION)
            yield from (f"${equations.latex(each)}$" for each in found)


def _number(text: str | None) -> int:
    return int(text) if text in {"1", "2", "3", "4", "5", "6", "7", "8"} else 0


def _picture(shape: Element) -> str:
    about = shape.find(f"{_P}nvPicPr/{_P}cNvPr")
    words = "" if about is None else about.get("descr") or about.get("name") or ""
    return f"![{' '.join(words.split())}](image)"


def _table_text(found: Element) -> str:
    rows = [
        [_frame_text(cell) for cell in row.iterfind(f"{_A}tc")] for row in found.iterfind(f"{_A}tr")
    ]
    return table(rows)


def _chart_text(chart: Element) -> str:
    """Return the numbers of a chart: a row for each category, a column for each series."""
    title = chart.find(f"{_C}chart/{_C}title")
    words = "" if title is None else " ".join(_frame_text(title).split())
    series = list(chart.iter(f"{_C}ser"))
    names = [" ".join(_points(each.find(f"{_C}tx")).values()) for each in series]
    values = [_points(_first(each, "val", "yVal")) for each in series]
    categories: dict[int, str] = {}
    for each in series:
        categories = categories or _points(_first(each, "cat", "xVal"))
    indexes = sorted({*categories, *(index for found in values for index in found)})
    rows = [["Category", *names]]
    rows.extend(
        [categories.get(index, ""), *(found.get(index, "") for found in values)]
        for index in indexes
    )
    return f"### Chart{f': {words}' if words else ''}\n\n{table(rows)}"


def _first(series: Element, *names: str) -> Element | None:
    return next(
        (found for name in names if (found := series.find(f"{_C}{name}")) is not None), None
    )


def _points(source: Element | None) -> dict[int, str]:
    """Return the stored points of a series by their index."""
    if source is None:
        return {}
    found = list(source.iter(f"{_C}pt"))
    if not found:
        text = source.findtext(f"{_C}v")
        return {0: text} if text else {}
    return {
        int(each.get("idx", "0")): each.findtext(f"{_C}v", "")
        for each in found
        if each.get("idx", "0").isdecimal()
    }
