"""The smallest documents that programs accept, written by hand."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006"
VENDOR = "application/vnd.openxmlformats-officedocument"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006"
SLIDES = "http://schemas.openxmlformats.org/presentationml/2006/main"


def write_pdf(path: Path, lines: tuple[str, ...]) -> Path:
    """One page of text; without lines, a page as a scanner without OCR makes it."""
    shown = " 0 -20 Td ".join(f"({line}) Tj" for line in lines)
    return write_pdf_pages(path, [f"BT /F1 12 Tf 72 700 Td {shown} ET" if lines else "q Q"])


def write_pdf_pages(path: Path, pages: Sequence[str | bytes]) -> Path:
    """A page for each stream of drawing commands; the font F1 is Helvetica."""
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(pages)))
    objects: list[bytes] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>",
    ]
    for index, page in enumerate(pages):
        stream = page if isinstance(page, bytes) else page.encode("latin-1")
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources 3 0 R >>" % (5 + 2 * index)
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
    return write_pdf_objects(path, objects)


def write_pdf_objects(path: Path, objects: Sequence[bytes]) -> Path:
    """Objects numbered from 1, of which the first is the catalog."""
    data, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    count = len(objects) + 1
    trailer = f"trailer << /Size {count} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    path.write_bytes(data + f"xref\n0 {count}\n0000000000 65535 f \n{table}{trailer}".encode())
    return path


def write_docx(path: Path, paragraphs: tuple[str, ...]) -> Path:
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    return write_docx_parts(path, body, {})


def write_docx_parts(path: Path, body: str, parts: Mapping[str, str]) -> Path:
    """A body of paragraphs, and parts that the document refers to by their kind: `footnotes`."""
    spaces = f'xmlns:w="{WORD}" xmlns:m="{OFFICE}/math" xmlns:r="{OFFICE}/relationships"'
    document = f"<w:document {spaces}><w:body>{body}</w:body></w:document>"
    more = {
        f"word/{kind}.xml": f"<w:{root} {spaces}>{inner}</w:{root}>"
        for kind, (root, inner) in ((kind, part.split("|", 1)) for kind, part in parts.items())
    }
    relations = "".join(
        f'<Relationship Id="r{kind}" Type="{OFFICE}/relationships/{kind}" Target="{kind}.xml"/>'
        for kind in parts
    )
    more["word/_rels/document.xml.rels"] = (
        f'<Relationships xmlns="{RELATIONS}">{relations}</Relationships>'
    )
    kind = f"{VENDOR}.wordprocessingml.document.main+xml"
    return _package(path, "word/document.xml", kind, {"word/document.xml": document, **more})


def write_pptx(
    path: Path, slides: Sequence[str], related: Mapping[str, tuple[str, str]] | None = None
) -> Path:
    """Slides, each the XML of its shapes; `related` are parts of the first: name → kind, XML."""
    spaces = f'xmlns:p="{SLIDES}" xmlns:a="{DRAWING}/main" xmlns:r="{OFFICE}/relationships"'
    spaces += f' xmlns:c="{DRAWING}/chart" xmlns:dgm="{DRAWING}/diagram" xmlns:m="{OFFICE}/math"'
    numbers = range(1, len(slides) + 1)
    listed = "".join(f'<p:sldId id="{255 + each}" r:id="rId{each}"/>' for each in numbers)
    relations = "".join(
        f'<Relationship Id="rId{each}" Type="{OFFICE}/relationships/slide" '
        f'Target="slides/slide{each}.xml"/>'
        for each in numbers
    )
    parts = {
        "ppt/presentation.xml": f"<p:presentation {spaces}><p:sldIdLst>{listed}</p:sldIdLst>"
        "</p:presentation>",
        "ppt/_rels/presentation.xml.rels": f'<Relationships xmlns="{RELATIONS}">{relations}'
        "</Relationships>",
    }
    for number, shapes in enumerate(slides, start=1):
        hidden = ' show="0"' if shapes.startswith("hidden:") else ""
        tree = shapes.removeprefix("hidden:")
        parts[f"ppt/slides/slide{number}.xml"] = (
            f"<p:sld {spaces}{hidden}><p:cSld><p:spTree>{tree}</p:spTree></p:cSld></p:sld>"
        )
    first = ""
    for name, (kind, xml) in (related or {}).items():
        parts[f"ppt/{name}"] = xml.replace("SPACES", spaces)
        first += (
            f'<Relationship Id="{kind}" Type="{OFFICE}/relationships/{kind}" Target="../{name}"/>'
        )
    parts["ppt/slides/_rels/slide1.xml.rels"] = (
        f'<Relationships xmlns="{RELATIONS}">{first}</Relationships>'
    )
    return _package(
        path, "ppt/presentation.xml", f"{VENDOR}.presentationml.presentation.main+xml", parts
    )


def write_xlsx(path: Path, rows: tuple[tuple[str, ...], ...], more: str = "") -> Path:
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    cells = "".join(
        "<row>" + "".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in row) + "</row>"
        for row in rows
    )
    sheet = f'<worksheet xmlns="{space}"><sheetData>{cells}{more}</sheetData></worksheet>'
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
    kinds = {"xl/worksheets/sheet1.xml": f"{VENDOR}.spreadsheetml.worksheet+xml"}
    return _package(path, "xl/workbook.xml", main, parts, kinds)


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
