"""Text of PDF files: paragraphs in reading order, tables as Markdown, a form feed between pages."""

import importlib
from collections.abc import Iterator
from functools import cache
from typing import Any, BinaryIO

from rlm.context.documents.formats import Refused
from rlm.context.documents.pdf_tables import Rule, Segment, find_tables, join_rules
from rlm.context.documents.right_to_left import in_reading_order

__all__ = ["text_of"]

_GAP = 1.2
"""A gap between two characters, in line heights, that is wider than any word space."""

_MAX_BOXES = 250
_THIN = 3.0
"""How thick a line may be, in points; anything thicker is an area."""


def text_of(file: BinaryIO) -> str:
    """Return the text of all pages; a page without text is empty."""
    layout = importlib.import_module("pdfminer.layout")
    errors = importlib.import_module("pdfminer.pdfdocument")
    try:
        return "\n\f".join(_page_text(page, layout) for page in _pages(file, layout))
    except errors.PDFPasswordIncorrect as error:
        raise Refused("it is password-protected; save it without a password") from error
    except errors.PDFEncryptionError as error:
        raise Refused(
            "it is encrypted in an unknown way; save it again without encryption"
        ) from error


def _pages(file: BinaryIO, layout: Any) -> Iterator[Any]:
    """Yield what pdfminer makes of each page: blocks of text, lines and figures."""
    interpreting = importlib.import_module("pdfminer.pdfinterp")
    parser = importlib.import_module("pdfminer.pdfparser").PDFParser(file)
    manager = interpreting.PDFResourceManager()
    device = importlib.import_module("pdfminer.converter").PDFPageAggregator(manager)
    interpreter = interpreting.PDFPageInterpreter(manager, device)
    document = _document_class()(parser)
    for page in importlib.import_module("pdfminer.pdfpage").PDFPage.create_pages(document):
        interpreter.process_page(page)
        found = device.get_result()
        found.analyze(layout.LAParams(all_texts=True, boxes_flow=None))
        yield found


@cache
def _document_class() -> Any:
    reading = importlib.import_module("pdfminer.pdfdocument")
    types = importlib.import_module("pdfminer.pdftypes")

    class Document(reading.PDFDocument):  # type: ignore[misc,name-defined]
        """A document whose objects may refer to themselves, where pdfminer would loop forever."""

        def getobj(self, objid: int) -> Any:
            found, seen = super().getobj(objid), {objid}
            while isinstance(found, types.PDFObjRef):
                if found.objid in seen:
                    raise types.PDFObjectNotFound(objid)
                seen.add(found.objid)
                found = super().getobj(found.objid)
            return found

    return Document


def _page_text(page: Any, layout: Any) -> str:
    shapes = _walk(page, layout, layout.LTCurve)
    rules = join_rules(rule for each in shapes for rule in _rules(each))
    reader = _LineReader(rules, layout)
    blocks = [reader.lines_of(each) for each in _boxes(page, layout)]
    segments = [each for block in blocks for line in block for each in line]
    tables = find_tables(segments, rules)
    owners = {id(each): found for found in tables for each in found.segments}
    texts: list[str] = []
    shown: set[int] = set()
    for block in blocks:
        lines: list[str] = []
        for line in block:
            found = next((owners[id(each)] for each in line if id(each) in owners), None)
            if found is not None and id(found) not in shown:
                shown.add(id(found))
                texts.extend(("\n".join(lines), found.text))
                lines = []
            kept = [each.text for each in line if id(each) not in owners]
            if kept:
                lines.append(" ".join(kept))
        texts.append("\n".join(lines))
    return "\n\n".join(text for text in texts if text.strip())


class _LineReader:
    """Divides lines of text into segments at wide gaps and at drawn vertical lines."""

    def __init__(self, rules: list[Rule], layout: Any) -> None:
        self._layout = layout
        self._walls = [each for each in rules if not each.is_horizontal]

    def lines_of(self, box: Any) -> list[list[Segment]]:
        if isinstance(box, self._layout.LTTextBoxVertical):
            return [_whole(line) for line in box]
        return [self._segments(line) for line in box]

    def _segments(self, line: Any) -> list[Segment]:
        middle = (line.y0 + line.y1) / 2
        walls = [
            each.x0
            for each in self._walls
            if each.y0 <= middle <= each.y1 and line.x0 < each.x0 < line.x1
        ]
        groups: list[list[Any]] = [[]]
        end: float | None = None
        for each in line:
            if isinstance(each, self._layout.LTChar):
                if end is not None and _divides(end, each.x0, _GAP * line.height, walls):
                    groups.append([])
                    end = None
                end = each.x1 if end is None else max(end, each.x1)
            groups[-1].append(each)
        return [found for group in groups for found in self._segment(group, line)]

    def _segment(self, group: list[Any], line: Any) -> Iterator[Segment]:
        """Yield the segment of these characters; pdfminer has added spaces between words."""
        placed = [each for each in group if isinstance(each, self._layout.LTChar)]
        text = "".join(each.get_text() for each in group).strip()
        if placed and text:
            goes_right = placed[0].x0 <= placed[-1].x0
            x0, x1 = min(each.x0 for each in placed), max(each.x1 for each in placed)
            yield Segment(x0, line.y0, x1, line.y1, in_reading_order(text) if goes_right else text)


def _whole(line: Any) -> list[Segment]:
    text = line.get_text().strip()
    return [Segment(line.x0, line.y0, line.x1, line.y1, text)] if text else []


def _divides(end: float, start: float, gap: float, walls: list[float]) -> bool:
    return start - end > gap or any(end <= wall + 1 and wall - 1 <= start for wall in walls)


def _boxes(page: Any, layout: Any) -> Iterator[Any]:
    """Yield the blocks of text of a page, and then of its figures, in reading order.

    pdfminer finds the order of columns by comparing all blocks with each other. If there are too
    many, as in large tables and drawings, they are read from top to bottom.
    """
    for container in (page, *_walk(page, layout, layout.LTFigure)):
        boxes = [each for each in container if isinstance(each, layout.LTTextBox)]
        if len(boxes) <= _MAX_BOXES:
            parameters, assigner = layout.LAParams(), layout.IndexAssigner()
            for group in container.group_textboxes(parameters, boxes):
                group.analyze(parameters)
                assigner.run(group)
            boxes.sort(key=lambda box: box.index)
        yield from boxes


def _walk(container: Any, layout: Any, kind: Any) -> Iterator[Any]:
    """Yield the objects of a kind in a page and its figures."""
    left = [iter(container)]
    while left:
        each = next(left[-1], None)
        if each is None:
            left.pop()
        else:
            if isinstance(each, kind):
                yield each
            if isinstance(each, layout.LTFigure):
                left.append(iter(each))


def _rules(shape: Any) -> Iterator[Rule]:
    """Yield the straight borders that a line or a rectangle draws."""
    x0, y0, x1, y1 = shape.bbox
    if y1 - y0 <= _THIN or x1 - x0 <= _THIN:
        yield Rule(x0, y0, x1, y1)
    elif len(shape.pts) in {4, 5} and shape.stroke:
        yield from (Rule(x0, y0, x1, y0), Rule(x0, y1, x1, y1))
        yield from (Rule(x0, y0, x0, y1), Rule(x1, y0, x1, y1))
