"""Documents of every format, converted in the real processes by the real libraries."""

from pathlib import Path

import pytest

from rlm.context import store_context
from rlm.errors import ConfigError
from tests.context.documents.compound import (
    write_compound_file,
    write_message,
    write_old_workbook,
)
from tests.context.documents.helpers import NEEDS_EXTRA
from tests.context.documents.office import (
    write_docx,
    write_epub,
    write_pdf,
    write_pptx,
    write_xlsx,
)
from tests.context.helpers import make_tree, seen_by_worker

pytestmark = NEEDS_EXTRA


def test_all_formats(tmp_path: Path) -> None:
    write_pdf(tmp_path / "a.pdf", ("The tide gate", "opens at 4471902"))
    write_docx(tmp_path / "b.docx", ("The lamp was replaced", "by Osei"))
    write_xlsx(tmp_path / "c.xlsx", (("name", "age"), ("Ann", "31")))
    write_epub(tmp_path / "d.epub", "A tale of tides")
    make_tree(tmp_path, {"e.html": "<html><script>no()</script><h1>Hi</h1><p>there</p></html>"})
    write_pptx(tmp_path / "f.pptx", ["<p:sp><a:p><a:r><a:t>Tides</a:t></a:r></a:p></p:sp>"])
    write_old_workbook(tmp_path / "g.xls")
    write_message(tmp_path / "h.msg", {0x0037: "The lamp", 0x1000: "It is dark."})
    assert seen_by_worker(store_context(tmp_path)) == {
        "a.pdf": "The tide gate\n\nopens at 4471902",
        "b.docx": "The lamp was replaced\n\nby Osei",
        "c.xlsx": "## Staff\n| name | age |\n| --- | --- |\n| Ann | 31 |",
        "d.epub": "**Title:** Tides\n\nA tale of tides",
        "e.html": "# Hi\n\nthere",
        "f.pptx": "<!-- Slide number: 1 -->\n\nTides",
        "g.xls": (
            "## Old\n| name | age | when |\n| --- | --- | --- |\n| Ann | 31 | 2020-02-02 |\n"
            "| Bo | 44.5 | 2020-02-02 10:30:00 |"
        ),
        "h.msg": "# Email Message\n\n**Subject:** The lamp\n\n## Content\n\nIt is dark.",
    }
    alone = store_context(tmp_path / "a.pdf")
    assert seen_by_worker(alone) == "The tide gate\n\nopens at 4471902"
    assert alone.description.endswith("; the text of a .pdf document.")


def test_a_page_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="contains no text; if its pages are scanned"):
        store_context(write_pdf(tmp_path / "scan.pdf", ()))


@pytest.mark.parametrize("suffix", [".pdf", ".docx", ".xlsx", ".pptx", ".epub", ".xls", ".msg"])
@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"%PDF-1.7"])
def test_damaged_documents_are_refused(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(start + b" this is nothing \xff\xfe\0" * 100)
    with pytest.raises(
        ConfigError, match=f"a{suffix} (could not be converted|contains no text)"
    ) as it:
        store_context(path)
    print(it.value)
    assert "\n" not in str(it.value)


@pytest.mark.parametrize("suffix", [".docx", ".xlsx", ".pptx"])
def test_a_password_protected_package_is_refused(tmp_path: Path, suffix: str) -> None:
    """Office encrypts a package as a whole and puts it into a file of the older format."""
    path = tmp_path / f"a{suffix}"
    streams = {"EncryptionInfo": b"\x04\0\x04\0", "EncryptedPackage": bytes(range(256)) * 40}
    with pytest.raises(ConfigError, match="could not be converted: it is password-protected"):
        store_context(write_compound_file(path, streams))
