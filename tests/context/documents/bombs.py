"""Documents of a few kilobytes that expand to gigabytes, or cause hours of work."""

import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.context.documents.office import (
    OFFICE,
    VENDOR,
    _package,
    _relation,
    write_epub,
    write_pdf_objects,
    write_pptx,
)

__all__ = ["BOMBS", "far_cell"]

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
MEBIBYTE = 1 << 20


def _docx(path: Path, document: str) -> Path:
    kind = f"{VENDOR}.wordprocessingml.document.main+xml"
    return _squeezed(_package(path, "word/document.xml", kind, {"word/document.xml": document}))


def _xlsx(path: Path, sheet: str, head: str = "") -> Path:
    book = (
        f'<workbook xmlns="{SHEET}" xmlns:r="{OFFICE}/relationships"><sheets>'
        '<sheet name="Staff" sheetId="1" r:id="rId1"/></sheets></workbook>'
    )
    parts = {
        "xl/workbook.xml": book,
        "xl/_rels/workbook.xml.rels": _relation("worksheet", "worksheets/sheet1.xml"),
        "xl/worksheets/sheet1.xml": f'{head}<worksheet xmlns="{SHEET}">{sheet}</worksheet>',
    }
    main = f"{VENDOR}.spreadsheetml.sheet.main+xml"
    kinds = {"xl/worksheets/sheet1.xml": f"{VENDOR}.spreadsheetml.worksheet+xml"}
    return _squeezed(_package(path, "xl/workbook.xml", main, parts, kinds))


def _squeezed(path: Path) -> Path:
    """The same archive, compressed twice as hard as any program does."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def far_cell(folder: Path) -> Path:
    """A sheet with two cells, the first and the last that there can be."""
    cells = (
        '<row r="1"><c r="A1" t="inlineStr"><is><t>a</t></is></c></row>'
        '<row r="1048576"><c r="XFD1048576" t="inlineStr"><is><t>z</t></is></c></row>'
    )
    return _xlsx(folder / "far.xlsx", f"<sheetData>{cells}</sheetData>")


def diagonal(folder: Path) -> Path:
    """A sheet with sixteen thousand cells, no two of which share a row or a column."""
    cells = "".join(
        f'<row r="{number}"><c r="{_column(number)}{number}"><v>1</v></c></row>'
        for number in range(1, 16_001)
    )
    return _xlsx(folder / "diagonal.xlsx", f"<sheetData>{cells}</sheetData>")


def _column(number: int) -> str:
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def long_string(folder: Path) -> Path:
    """One cell of a gigabyte, in an archive of a megabyte."""
    path = far_cell(folder)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    long = folder / "long.xlsx"
    with zipfile.ZipFile(long, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in parts.items():
            if "sheet1" not in name:
                archive.writestr(name, data)
        with archive.open("xl/worksheets/sheet1.xml", "w") as part:
            part.write(f'<worksheet xmlns="{SHEET}"><sheetData><row r="1">'.encode())
            part.write(b'<c r="A1" t="inlineStr"><is><t>')
            for _ in range(1_000):
                part.write(b"x" * MEBIBYTE)
            part.write(b"</t></is></c></row></sheetData></worksheet>")
    return long


def _entities(name: str) -> str:
    """A thousand million laughs."""
    lines = "".join(f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' for level in range(1, 10))
    return f'<!DOCTYPE {name} [<!ENTITY l0 "laugh">{lines}]>'


def entities_in_words(folder: Path) -> Path:
    body = "<w:body><w:p><w:r><w:t>&l9;</w:t></w:r></w:p></w:body>"
    document = f'<w:document xmlns:w="{WORD}">{body}</w:document>'
    return _docx(folder / "entities.docx", _entities("w:document") + document)


def entities_in_cells(folder: Path) -> Path:
    cell = (
        '<sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>&l9;</t></is></c></row></sheetData>'
    )
    return _xlsx(folder / "entities.xlsx", cell, _entities("worksheet"))


def many_paragraphs(folder: Path) -> Path:
    """Two million empty runs, of which a few kilobytes are left when they are compressed."""
    body = "<w:p>" + "<w:r><w:t>x</w:t></w:r>" * 2_000_000 + "</w:p>"
    document = f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
    return _docx(folder / "many.docx", document)


def deep_tables(folder: Path) -> Path:
    """Tables in tables, thirty thousand deep."""
    levels = 30_000
    body = "<w:tbl><w:tr><w:tc>" * levels + "</w:tc></w:tr></w:tbl>" * levels
    document = f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
    return _docx(folder / "deep.docx", document)


def large_stream(folder: Path) -> Path:
    """A page whose drawing is two gigabytes of text."""
    squeezed = b"".join(_squeezed_stream(b"(x) Tj\n" * 150_000, 2_000))
    objects: list[bytes] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources 5 0 R >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(squeezed), squeezed),
        b"<< >>",
    ]
    return write_pdf_objects(folder / "large.pdf", objects)


def forms_in_forms(folder: Path) -> Path:
    """A page whose drawing calls the next one ten times, which does the same, twelve deep."""
    levels = 12
    head = (
        b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X %d 0 R >> >>"
    )
    call = b"/X Do " * 10
    objects: list[bytes] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources 17 0 R >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(call), call),
    ]
    objects += [
        b"<< %s /Length %d >>\nstream\n%s\nendstream" % (head % (6 + level), len(call), call)
        for level in range(levels)
    ]
    objects.append(b"<< /XObject << /X 5 0 R >> >>")
    return write_pdf_objects(folder / "forms.pdf", objects)


def _squeezed_stream(block: bytes, times: int) -> Iterator[bytes]:
    squeezer = zlib.compressobj(9)
    for _ in range(times):
        yield squeezer.compress(block)
    yield squeezer.flush()


def long_chapter(folder: Path) -> Path:
    """An e-book of one chapter, a gigabyte long."""
    path = folder / "long.epub"
    opf = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata/>'
        '<manifest><item id="c" href="c.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="c"/></spine></package>'
    )
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0">'
        '<rootfiles><rootfile full-path="book.opf"/></rootfiles></container>'
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr("META-INF/container.xml", container)
        archive.writestr("book.opf", opf)
        with archive.open("c.xhtml", "w") as part:
            part.write(b"<html><body>")
            for _ in range(1_000):
                part.write(b"<p>x</p>" * (MEBIBYTE // 8))
            part.write(b"</body></html>")
    return path


def deep_groups(folder: Path) -> Path:
    """Groups of shapes in groups, thirty thousand deep."""
    levels = 30_000
    path = write_pptx(folder / "deep.pptx", ["<p:grpSp>" * levels + "</p:grpSp>" * levels])
    return _squeezed(path)


def entities_in_slides(folder: Path) -> Path:
    path = write_pptx(folder / "entities.pptx", ["<p:sp/>"])
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    name = "ppt/slides/slide1.xml"
    parts[name] = _entities("p:sld") + parts[name].replace("<p:sp/>", "<p:sp>&l9;</p:sp>")
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return path


def repeated_chapter(folder: Path) -> Path:
    """An e-book that shows one chapter a hundred thousand times."""
    path = write_epub(folder / "repeated.epub", "word " * 2_000)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    item = '<itemref idref="c"/>'
    parts["book.opf"] = parts["book.opf"].replace(item, item * 100_000)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return _squeezed(path)


BOMBS: dict[str, Callable[[Path], Path]] = {
    each.__name__: each
    for each in (
        deep_groups,
        diagonal,
        entities_in_slides,
        forms_in_forms,
        long_string,
        entities_in_words,
        entities_in_cells,
        many_paragraphs,
        deep_tables,
        large_stream,
        long_chapter,
        repeated_chapter,
    )
}
