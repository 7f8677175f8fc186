"""PDF: columns, pages, tables, passwords, damaged and recursive objects."""

from pathlib import Path

import pytest

from rlm.context import store_context
from rlm.context.documents import formats
from rlm.errors import ConfigError
from tests.context.documents.helpers import NEEDS_EXTRA, text_of
from tests.context.documents.office import write_pdf_objects, write_pdf_pages

pytestmark = NEEDS_EXTRA


def at(x: float, y: float, text: str) -> str:
    return f"BT /F1 10 Tf {x} {y} Td ({text}) Tj ET\n"


def test_two_columns_are_read_one_after_the_other(tmp_path: Path) -> None:
    words = "the keeper of the lamp writes it down"
    left = "".join(at(72, 700 - 12 * each, f"left {each} {words}") for each in range(20))
    right = "".join(at(320, 700 - 12 * each, f"right {each} {words}") for each in range(20))
    mixed = "\n".join(
        line for pair in zip(left.splitlines(), right.splitlines(), strict=True) for line in pair
    )
    text = text_of(write_pdf_pages(tmp_path / "a.pdf", [mixed]))
    sides = [line.split()[0] for line in text.splitlines() if line]
    assert sides == ["left"] * 20 + ["right"] * 20


def test_pages_are_separated_by_a_form_feed(tmp_path: Path) -> None:
    pages = [at(72, 700, "one"), "q Q", at(72, 700, "three")]
    assert text_of(write_pdf_pages(tmp_path / "a.pdf", pages)) == "one\n\f\n\fthree"


def test_tables_between_paragraphs(tmp_path: Path) -> None:
    page = at(72, 720, "The staff of the harbour, as the board knows it today:")
    rows = (("Name", "Role", "Pay"), ("Ann Osei", "Keeper", "41,200"), ("Bo", "Clerk", "33,000"))
    for index, row in enumerate(rows):
        y = 690 - 18 * index
        for x, cell in zip((76, 126, 176), row, strict=True):
            page += at(x, y, cell)
        for x in (72, 122, 172, 222):
            page += f"{x} {y - 5} m {x} {y + 13} l S\n"
        for edge in (y - 5, y + 13):
            page += f"72 {edge} m 222 {edge} l S\n"
    page += at(72, 600, "Everybody else is employed by the town and not in this list.")
    assert text_of(write_pdf_pages(tmp_path / "a.pdf", [page])) == (
        "The staff of the harbour, as the board knows it today:\n\n"
        "| Name | Role | Pay |\n| --- | --- | --- |\n"
        "| Ann Osei | Keeper | 41,200 |\n| Bo | Clerk | 33,000 |\n\n"
        "Everybody else is employed by the town and not in this list."
    )


def test_text_inside_a_figure_is_read(tmp_path: Path) -> None:
    stream = at(10, 10, "in a form").encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources 6 0 R >>",
        b"<< /Length 5 >>\nstream\n/X Do\nendstream",
        b"<< /Type /XObject /Subtype /Form /BBox [0 0 600 700] /Length %d /Resources << /Font "
        b"<< /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>\n"
        b"stream\n%s\nendstream" % (len(stream), stream),
        b"<< /XObject << /X 5 0 R >> >>",
    ]
    assert text_of(write_pdf_objects(tmp_path / "a.pdf", objects)) == "in a form"


def test_a_password_protected_pdf_is_refused(tmp_path: Path) -> None:
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [] /Count 0 >>",
        b"<< /Filter /Standard /V 2 /R 3 /Length 128 /P -44 /O <%s> /U <%s> >>"
        % (b"00" * 32, b"11" * 32),
    ]
    path = write_pdf_objects(tmp_path / "a.pdf", objects)
    data = path.read_bytes().replace(b"/Root 1 0 R", b"/Root 1 0 R /Encrypt 3 0 R /ID [<00> <00>]")
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"a\.pdf could not be converted: it is password-p"):
        store_context(path)


@pytest.mark.parametrize(
    "kids",
    [b"[2 0 R]", b"[3 0 R 3 0 R]", b"2 0 R", b"[" * 5_000, b"[9 0 R null (x) /N]", b"4 0 R"],
    ids=["itself", "cycle", "no list", "deep", "nothing", "references"],
)
def test_recursive_page_trees_are_refused(tmp_path: Path, kids: bytes) -> None:
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids %s /Count 1000000000 >>" % kids,
        b"<< /Type /Pages /Kids [2 0 R] /Parent 3 0 R /Count 1 >>",
        b"5 0 R",
        b"4 0 R",
    ]
    path = write_pdf_objects(tmp_path / "a.pdf", objects)
    found = formats.convert(str(path), ".pdf")
    assert found == "" or isinstance(found, dict)


def test_a_large_table_is_read_as_one(tmp_path: Path) -> None:
    """More blocks than are compared with each other."""
    page = "".join(
        at(40 + 44 * column, 750 - 12 * row, f"{row}.{column}")
        for row in range(30)
        for column in range(12)
    )
    lines = text_of(write_pdf_pages(tmp_path / "a.pdf", [page])).splitlines()
    assert len(lines) == 31
    assert lines[-1] == f"| {' | '.join(f'29.{column}' for column in range(12))} |"
