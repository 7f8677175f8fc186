"""EPUB, HTML and Outlook messages."""

import struct
import zipfile
from pathlib import Path

import pytest

from rlm.context import store_context
from rlm.context.documents import formats
from rlm.errors import ConfigError
from tests.context.documents.compound import write_message
from tests.context.documents.helpers import NEEDS_EXTRA, text_of
from tests.context.documents.office import write_epub

pytestmark = NEEDS_EXTRA


class TestHtml:
    def test_structure(self, tmp_path: Path) -> None:
        page = (
            "<html><head><title>T</title><style>x{}</style></head><body><script>no()</script>"
            "<h2>Hi</h2><p>max_steps *is* <a href='javascript:x()'>js</a> <a href='http://a.b/c'>"
            "link</a></p><ul><li>a<ul><li>b</li></ul></li></ul><table><tr><td>1</td><td>2</td></tr>"
            "<tr><td>3</td><td>4</td></tr></table><img src='data:image/png;base64,AA' alt='pic'>"
            "<input type=checkbox checked>done</body></html>"
        )
        (tmp_path / "a.html").write_text(page, "utf-8")
        assert text_of(tmp_path / "a.html") == (
            "## Hi\n\nmax_steps *is* js [link](http://a.b/c)\n\n* a\n  + b\n\n"
            "| 1 | 2 |\n| --- | --- |\n| 3 | 4 |\n\n![pic](image)[x] done"
        )

    @pytest.mark.parametrize(
        "data",
        [
            "<p>café שלום</p>".encode(),
            "\ufeff<p>café שלום</p>".encode("utf-16"),
            "<p>café שלום</p>".encode("utf-8-sig"),
            '<meta charset="iso-8859-8"><p>caf&eacute; שלום</p>'.encode("iso-8859-8"),
            '<?xml version="1.0" encoding="nowhere"?><p>café שלום</p>'.encode(),
        ],
    )
    def test_encodings(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "a.html").write_bytes(data)
        assert text_of(tmp_path / "a.html").endswith("café שלום")

    def test_windows_1252_is_the_last_resort(self, tmp_path: Path) -> None:
        (tmp_path / "a.html").write_bytes("<p>café – 5 €</p>".encode("cp1252"))
        assert text_of(tmp_path / "a.html") == "café – 5 €"

    def test_deeply_nested_html_keeps_its_text(self, tmp_path: Path) -> None:
        (tmp_path / "a.html").write_text("<div>" * 20_000 + "found" + "</div>" * 20_000, "utf-8")
        assert store_context(tmp_path / "a.html").text() == "found"


class TestEpub:
    def test_chapters_in_the_order_of_the_spine(self, tmp_path: Path) -> None:
        path = tmp_path / "a.epub"
        opf = (
            '<package xmlns="http://www.idpf.org/2007/opf"><metadata '
            'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Tides</dc:title>'
            "<dc:creator>Ann</dc:creator><dc:creator>Bo</dc:creator></metadata><manifest>"
            '<item id="a" href="one%20a.xhtml"/><item id="b" href="../text/b.xhtml"/>'
            '<item id="c" href="gone.xhtml"/></manifest><spine><itemref idref="b"/>'
            '<itemref idref="a"/><itemref idref="c"/><itemref idref="x"/></spine></package>'
        )
        container = '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        container += '<rootfiles><rootfile full-path="book/b.opf"/></rootfiles></container>'
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("META-INF/container.xml", container)
            archive.writestr("book/b.opf", opf)
            archive.writestr("book/one a.xhtml", "<!DOCTYPE html><h1>Second</h1>")
            archive.writestr("text/b.xhtml", "<p>First</p>")
        assert text_of(path) == (
            "**Title:** Tides\n**Authors:** Ann, Bo\n\nFirst\n\n# Second\n\n"
            "[book/gone.xhtml is missing]"
        )

    def test_an_encrypted_book_is_refused(self, tmp_path: Path) -> None:
        path = write_epub(tmp_path / "a.epub", "text")
        encryption = '<encryption xmlns:e="http://www.w3.org/2001/04/xmlenc#"><e:EncryptedData>'
        encryption += '<e:CipherReference URI="c.xhtml"/></e:EncryptedData></encryption>'
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("META-INF/encryption.xml", encryption)
        with pytest.raises(ConfigError, match="its chapters are encrypted"):
            store_context(path)


class TestOutlook:
    def test_a_message(self, tmp_path: Path) -> None:
        sent = 133_500_000_000_000_000
        properties = bytes(32) + struct.pack("<IIQ", 0x0039_0040, 6, sent)
        texts = {0x0C1A: "Ann", 0x0C1F: "ann@a.b", 0x0E04: "Bo", 0x0037: "שלום", 0x1000: "Hi\r\nBo"}
        streams = {
            "__properties_version1.0": properties,
            "__attach_version1.0_#00000000/__substg1.0_3707001F": "plan.pdf".encode("utf-16-le"),
        }
        path = write_message(tmp_path / "a.msg", texts, **streams)
        assert text_of(path) == (
            "# Email Message\n\n**From:** Ann <ann@a.b>\n**To:** Bo\n"
            "**Date:** 2024-01-17 21:20:00 UTC\n**Subject:** שלום\n**Attachments:** plan.pdf\n\n"
            "## Content\n\nHi\r\nBo"
        )

    def test_html_and_an_older_code_page(self, tmp_path: Path) -> None:
        streams = {
            "__properties_version1.0": bytes(32) + struct.pack("<IIQ", 0x3FFD_0003, 6, 1251),
            "__substg1.0_0037001E": "Привет".encode("cp1251"),
            "__substg1.0_10130102": b"<p>The <b>lamp</b></p>",
        }
        path = write_message(tmp_path / "a.msg", {}, **streams)
        assert text_of(path) == (
            "# Email Message\n\n**Subject:** Привет\n\n## Content\n\nThe **lamp**"
        )

    def test_an_endless_chain_of_sectors_is_refused(self, tmp_path: Path) -> None:
        path = write_message(tmp_path / "a.msg", {0x1000: "x" * 40_000})
        data = path.read_bytes()
        path.write_bytes(data.replace((9).to_bytes(4, "little"), (1).to_bytes(4, "little")))
        assert len(text_of(path)) <= 40_100

    def test_a_compound_file_that_is_not_a_message_has_no_text(self, tmp_path: Path) -> None:
        path = write_message(tmp_path / "a.msg", {}, other=b"x")
        assert formats.convert(str(path), ".msg") == ""
