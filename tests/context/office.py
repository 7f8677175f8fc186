"""The smallest documents that programs accept, written by hand."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006"
VENDOR = "application/vnd.openxmlformats-officedocument"


def write_pdf(path: Path, lines: tuple[str, ...]) -> Path:
    """One page of text; without lines, a page as a scanner without OCR makes it."""
    shown = " 0 -20 Td ".join(f"({line}) Tj" for line in lines)
    stream = f"BT /F1 12 Tf 72 700 Td {shown} ET" if lines else "q Q"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources 6 0 R >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        "<< /Font << /F1 5 0 R >> >>",
    ]
    data, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{each}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    trailer = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    count = len(objects) + 1
    path.write_bytes(data + f"xref\n0 {count}\n0000000000 65535 f \n{table}{trailer}".encode())
    return path


def write_docx(path: Path, paragraphs: tuple[str, ...]) -> Path:
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    document = f'<w:document xmlns:w="{space}"><w:body>{body}</w:body></w:document>'
    kind = f"{VENDOR}.wordprocessingml.document.main+xml"
    return _package(path, "word/document.xml", kind, {"word/document.xml": document})


def write_xlsx(path: Path, rows: tuple[tuple[str, ...], ...]) -> Path:
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    cells = "".join(
        "<row>" + "".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in row) + "</row>"
        for row in rows
    )
    sheet = f'<worksheet xmlns="{space}"><sheetData>{cells}</sheetData></worksheet>'
    book = (
        f'<workbook xmlns="{space}" xmlns:r="{OFFICE}/relationships"><sheets>'
        '<sheet name="Staff" sheetId="1" r:id="rId1"/></sheets></workbook>'
    )
    parts = {
        "xl/workbook.xml": book,
        "xl/_rels/workbook.xml.rels": _relation("worksheet", "worksheets/sheet1.xml"),
        "xl/worksheets/sheet1.xml": sheet,
    }
    main = f"{VENDOR}.spreadsheetml.sheet.main+xml"
    more = {"xl/worksheets/sheet1.xml": f"{VENDOR}.spreadsheetml.worksheet+xml"}
    return _package(path, "xl/workbook.xml", main, parts, more)


def write_epub(path: Path, text: str) -> Path:
    opf = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Tides</dc:title></metadata>'
        '<manifest><item id="c" href="c.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="c"/></spine></package>'
    )
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0">'
        '<rootfiles><rootfile full-path="book.opf"/></rootfiles></container>'
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr("META-INF/container.xml", container)
        archive.writestr("book.opf", opf)
        archive.writestr("c.xhtml", f"<html><body><p>{text}</p></body></html>")
    return path


def _relation(kind: str, target: str) -> str:
    return (
        f'<Relationships xmlns="{RELATIONS}"><Relationship Id="rId1" '
        f'Type="{OFFICE}/relationships/{kind}" Target="{target}"/></Relationships>'
    )


def _package(
    path: Path,
    main: str,
    kind: str,
    parts: Mapping[str, str],
    more: Mapping[str, str] | None = None,
) -> Path:
    overrides = "".join(
        f'<Override PartName="/{part}" ContentType="{each}"/>'
        for part, each in {main: kind, **(more or {})}.items()
    )
    types = (
        f'<Types xmlns="{TYPES}"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{overrides}</Types>'
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", types)
        archive.writestr("_rels/.rels", _relation("officeDocument", main))
        for name, content in parts.items():
            archive.writestr(name, content)
    return path
