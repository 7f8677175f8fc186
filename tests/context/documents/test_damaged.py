"""Truncated and changed documents end as text or as one line of error, never otherwise."""

import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm.context.documents import Converter, DocumentError, converter
from tests.context.documents.compound import write_message, write_old_workbook
from tests.context.documents.helpers import NEEDS_EXTRA
from tests.context.documents.office import (
    write_docx_parts,
    write_epub,
    write_pdf_pages,
    write_pptx,
    write_xlsx,
)

pytestmark = NEEDS_EXTRA

PAGE = "BT /F1 12 Tf 72 700 Td (The tide gate) Tj 0 -20 Td (opens) Tj ET 72 600 m 200 600 l S"
SLIDE = "<p:sp><p:txBody><a:p><a:r><a:t>Tides</a:t></a:r></a:p></p:txBody></p:sp>"
BODY = "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>lamp</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
WRITERS: dict[str, Callable[[Path], Path]] = {
    ".docx": lambda path: write_docx_parts(path, BODY, {"styles": "styles|<w:style/>"}),
    ".epub": lambda path: write_epub(path, "A <b>tale</b>"),
    ".msg": lambda path: write_message(path, {0x0037: "The lamp", 0x1000: "It is dark."}),
    ".pdf": lambda path: write_pdf_pages(path, [PAGE, PAGE]),
    ".pptx": lambda path: write_pptx(path, [SLIDE, SLIDE]),
    ".xls": write_old_workbook,
    ".xlsx": lambda path: write_xlsx(path, (("name", "age"), ("Ann", "31"))),
}
PACKAGES = (".docx", ".epub", ".pptx", ".xlsx")
TOKENS = (
    b"<",
    b">",
    b"&",
    b'"',
    b"/",
    b"\0",
    b"\xff",
    b"-1",
    b"99999999999",
    b"<<",
    b"R",
    b"[" * 99,
)


@pytest.fixture(scope="module", autouse=True)
def jobs() -> Iterator[None]:
    """Short limits; all in processes, so that a crash of one is no crash of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(converter, "_MIN_SECONDS", 20.0)
        yield
        converter._JOBS.close()


@st.composite
def changed(draw: st.DrawFn, data: bytes) -> bytes:
    """A few pieces replaced, removed or repeated, and perhaps the end cut off."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 40)))
        piece = draw(
            st.one_of(st.binary(max_size=8), st.sampled_from(TOKENS), st.just(data[start:end] * 3))
        )
        data = data[:start] + piece + data[end:]
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


def check(path: Path) -> None:
    found, problem = "", ""
    try:
        found = Converter().text_of(path) or ""
    except DocumentError as error:
        problem = str(error)
    assert bool(found.strip()) != bool(problem)
    assert not problem or problem.startswith(str(path))
    assert "\n" not in problem
    assert "takes more than" not in problem
    assert "the converter crashed" not in problem


CHECKED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("suffix", WRITERS)
@given(data=st.data())
@CHECKED
def test_changed_files_are_read_or_refused(
    tmp_path: Path, suffix: str, data: st.DataObject
) -> None:
    path = WRITERS[suffix](tmp_path / f"a{suffix}")
    path.write_bytes(data.draw(changed(path.read_bytes())))
    check(path)


@pytest.mark.parametrize("suffix", PACKAGES)
@given(data=st.data())
@CHECKED
def test_changed_parts_of_packages_are_read_or_refused(
    tmp_path: Path, suffix: str, data: st.DataObject
) -> None:
    """The package is whole, so that what was changed reaches the readers of its parts."""
    path = WRITERS[suffix](tmp_path / f"a{suffix}")
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = data.draw(st.sampled_from(sorted(parts)))
    parts[name] = data.draw(changed(parts[name]))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for each, content in parts.items():
            archive.writestr(each, content)
    path.write_bytes(made.getvalue())
    check(path)


@given(data=st.data())
@CHECKED
def test_changed_page_drawings_are_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    drawing = data.draw(changed(PAGE.encode()))
    check(write_pdf_pages(tmp_path / "a.pdf", [drawing]))


@pytest.mark.parametrize("suffix", WRITERS)
def test_truncated_files_are_read_or_refused(tmp_path: Path, suffix: str) -> None:
    whole = WRITERS[suffix](tmp_path / f"a{suffix}").read_bytes()
    for tenths in range(10):
        path = tmp_path / f"{tenths}{suffix}"
        path.write_bytes(whole[: len(whole) * tenths // 10])
        check(path)


@pytest.mark.parametrize(("place", "shift"), [(30, 30), (30, 16), (32, 30), (32, 12)])
def test_sectors_of_an_impossible_size_are_refused(tmp_path: Path, place: int, shift: int) -> None:
    path = WRITERS[".msg"](tmp_path / "a.msg")
    data = bytearray(path.read_bytes())
    data[place] = shift
    path.write_bytes(data)
    check(path)
    with pytest.raises(DocumentError, match="impossible size"):
        Converter().text_of(path)


def test_a_huge_picture_is_never_decompressed(tmp_path: Path) -> None:
    """Four gigabytes of pixels in a PDF, of which the reader needs only that it is a picture."""
    pixels = zlib.compress(bytes(1 << 20), 9)
    head = b"BI /W 65535 /H 65535 /BPC 8 /CS /RGB /F /Fl ID "
    page = PAGE.encode() + b"\n" + head + pixels + b"\nEI Q"
    text = Converter().text_of(write_pdf_pages(tmp_path / "a.pdf", [page]))
    assert text is not None
    assert text.startswith("The tide gate")
