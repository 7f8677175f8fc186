"""Text of PDF files: paragraphs in reading order, tables as Markdown, a form feed between pages."""

import importlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from rlm.context.documents.pdf_tables import Rule, Segment, find_tables
from rlm.context.documents.refusing import Refused

__all__ = ["text_of"]

_GAP = 1.2
"""A gap between two characters, in heights of a line, that no space between words has."""

_THIN = 3.0
"""How thick a line may be, in points; a thicker one is an area."""


def text_of(file: BinaryIO) -> str:
    """Return the text of all pages; one without text is empty."""
    high_level = importlib.import_module("pdfminer.high_level")
    layout = importlib.import_module("pdfminer.layout")
    document = importlib.import_module("pdfminer.pdfdocument")
    parameters = layout.LAParams(all_texts=True)
    try:
        pages = [
            _page_text(page, layout) for page in high_level.extract_pages(file, laparams=parameters)
        ]
    except document.PDFPasswordIncorrect as error:
        raise Refused("it is protected by a password; save it without one") from error
    except document.PDFEncryptionError as error:
        raise Refused("it is encrypted in a way that is not known; save it anew") from error
    return "\n\f".join(pages)


def _page_text(page: Any, layout: Any) -> str:
    blocks = [_Block(each, layout) for each in _walk(page, layout, layout.LTTextBox)]
    rules = [rule for each in _walk(page, layout, layout.LTCurve) for rule in _rules(each)]
    segments = [each for block in blocks for line in block.lines for each in line]
    tables = find_tables(segments, rules)
    owners = {id(each): found for found in tables for each in found.segments}
    texts, shown = [], set()
    for block in blocks:
        lines: list[str] = []
        for line in block.lines:
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


class _Block:
    """A block of text as pdfminer found it: lines, each of segments that wide gaps divide."""

    def __init__(self, box: Any, layout: Any) -> None:
        vertical = isinstance(box, layout.LTTextBoxVertical)
        self.lines = [_segments(line, layout, whole=vertical) for line in box]


def _walk(container: Any, layout: Any, kind: Any) -> Iterator[Any]:
    """Yield the objects of a kind in a page and its figures."""
    left = [iter(container)]
    while left:
        each = next(left[-1], None)
        if each is None:
            left.pop()
        elif isinstance(each, kind):
            yield each
        elif isinstance(each, layout.LTFigure):
            left.append(iter(each))


def _segments(line: Any, layout: Any, *, whole: bool) -> list[Segment]:
    found: list[Segment] = []
    start: Any = None
    x0 = x1 = 0.0
    text = ""
    for each in line:
        if not isinstance(each, layout.LTChar):
            text += each.get_text()  # A space or line end that pdfminer added.
            continue
        wide = not whole and abs(each.x0 - x1) > _GAP * line.height and each.x0 > x1
        if start is not None and wide:
            found.append(Segment(x0, line.y0, x1, line.y1, text.strip()))
            start, text = None, ""
        if start is None:
            start, x0, x1 = each, each.x0, each.x1
        x0, x1 = min(x0, each.x0), max(x1, each.x1)
        text += each.get_text()
    if start is not None or text.strip():
        found.append(Segment(x0, line.y0, x1, line.y1, text.strip()))
    return [each for each in found if each.text]


def _rules(shape: Any) -> Iterator[Rule]:
    """Yield the straight borders that a line or a rectangle draws."""
    x0, y0, x1, y1 = shape.bbox
    if y1 - y0 <= _THIN or x1 - x0 <= _THIN:
        yield Rule(x0, y0, x1, y1)
    elif len(shape.pts) in {4, 5} and shape.stroke:
        yield from (Rule(x0, y0, x1, y0), Rule(x0, y1, x1, y1))
        yield from (Rule(x0, y0, x0, y1), Rule(x1, y0, x1, y1))
