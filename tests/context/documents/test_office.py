"""Word and Excel: structure, notes, formulas, dates, hidden sheets."""

from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pytest

from tests.context.documents.helpers import NEEDS_EXTRA, text_of
from tests.context.documents.office import write_docx_parts, write_xlsx

pytestmark = NEEDS_EXTRA


def paragraph(text: str, more: str = "") -> str:
    return f"<w:p>{more}<w:r><w:t>{text}</w:t></w:r></w:p>"


def styled(text: str, style: str) -> str:
    return paragraph(text, f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>')


STYLES = (
    'styles|<w:style w:type="paragraph" w:styleId="H1"><w:name w:val="heading 1"/></w:style>'
    '<w:style w:styleId="Odd"/><w:style w:type="paragraph"/>'
)


class TestWord:
    def test_headings_tables_and_merged_cells(self, tmp_path: Path) -> None:
        cells = "".join(f"<w:tc>{paragraph(each)}</w:tc>" for each in ("Ann", "31", "a|b"))
        wide = f'<w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr>{paragraph("wide")}</w:tc>'
        table = (
            f"<w:tbl><w:tr>{cells}</w:tr><w:tr>{wide}<w:tc>{paragraph('x')}</w:tc></w:tr></w:tbl>"
        )
        body = styled("Tide_report", "H1") + paragraph("5 * 3 ≠ 2*6") + table
        path = write_docx_parts(tmp_path / "a.docx", body, {"styles": STYLES})
        lines = text_of(path).splitlines()
        assert lines[:4] == ["# Tide_report", "", "5 * 3 ≠ 2*6", ""]
        assert lines[4:] == ["| Ann | 31 | a\\|b |", "| --- | --- | --- |", "| wide | | x |"]

    def test_lists(self, tmp_path: Path) -> None:
        number = '<w:pPr><w:numPr><w:ilvl w:val="{}"/><w:numId w:val="{}"/></w:numPr></w:pPr>'
        numbering = "numbering|" + "".join(
            f'<w:abstractNum w:abstractNumId="{each}"><w:lvl w:ilvl="0"><w:numFmt w:val="{kind}"/>'
            f'</w:lvl><w:lvl w:ilvl="1"><w:numFmt w:val="{kind}"/></w:lvl></w:abstractNum>'
            for each, kind in enumerate(("bullet", "decimal"))
        )
        numbering += "".join(
            f'<w:num w:numId="{each + 1}"><w:abstractNumId w:val="{each}"/></w:num>'
            for each in range(2)
        )
        body = paragraph("a", number.format(0, 1)) + paragraph("b", number.format(1, 1))
        body += paragraph("one", number.format(0, 2)) + paragraph("two", number.format(0, 2))
        path = write_docx_parts(tmp_path / "a.docx", body, {"numbering": numbering})
        assert text_of(path).split() == ["*", "a", "+", "b", "1.", "one", "2.", "two"]

    def test_notes_comments_headers_and_footers(self, tmp_path: Path) -> None:
        body = (
            '<w:p><w:r><w:t>Text</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r>'
            '<w:r><w:commentReference w:id="0"/></w:r></w:p>'
        )
        parts = {
            "footnotes": f'footnotes|<w:footnote w:id="2">{paragraph("A footnote.")}</w:footnote>',
            "comments": f'comments|<w:comment w:id="0">{paragraph("Why?")}</w:comment>',
            "header": f"hdr|{paragraph('Case 17')}{paragraph('secret')}",
            "footer": f"ftr|{paragraph('  ')}",
        }
        text = text_of(write_docx_parts(tmp_path / "a.docx", body, parts))
        assert text.startswith("Text")
        assert [text.count(each) for each in ("A footnote.", "Why?")] == [1, 1]
        assert text.endswith("\n\n**Header:** Case 17 secret")

    def test_equations_and_tracked_changes(self, tmp_path: Path) -> None:
        base, power = "<m:e><m:r><m:t>c</m:t></m:r></m:e>", "<m:r><m:t>2</m:t></m:r>"
        power = f"<m:sSup>{base}<m:sup>{power}</m:sup></m:sSup>"
        body = f"<w:p><w:r><w:t>E=</w:t></w:r><m:oMath>{power}</m:oMath></w:p>"
        body += f"<w:p><m:oMathPara><m:oMath>{power}</m:oMath></m:oMathPara></w:p>"
        body += "<w:p><w:del><w:r><w:delText>old</w:delText></w:r></w:del>"
        body += "<w:ins><w:r><w:rPr><w:dstrike/></w:rPr><w:t>new</w:t></w:r></w:ins></w:p>"
        text = text_of(write_docx_parts(tmp_path / "a.docx", body, {}))
        assert text == "E=${c}^{2}$\n\n$${c}^{2}$$\n\n~~new~~"


class TestExcel:
    def test_values_of_every_kind(self, tmp_path: Path) -> None:
        book = pytest.importorskip("openpyxl").Workbook()
        sheet = book.active
        sheet.title = "Staff"
        rows: list[list[Any]] = [
            ["name", "joined", "seen", "pay", "active", "at"],
            ["Ann", date(2019, 3, 1), datetime(2021, 7, 15, 13, 45), 41200, True, time(9, 30)],
            ["a|b\nc", None, None, 0.1, False, "#N/A"],
            [],
            ["שלום", None, None, 1e21, None, None],
        ]
        for row in rows:
            sheet.append(row)
        hidden = book.create_sheet("Rates")
        hidden["XFD1048576"] = 7
        hidden.sheet_state = "veryHidden"
        book.create_sheet("Empty")
        book.save(tmp_path / "a.xlsx")
        assert text_of(tmp_path / "a.xlsx") == (
            "## Staff\n"
            "| name | joined | seen | pay | active | at |\n"
            "| --- | --- | --- | --- | --- | --- |\n"
            "| Ann | 2019-03-01 | 2021-07-15 13:45:00 | 41200 | TRUE | 09:30:00 |\n"
            "| a\\|b c |  |  | 0.1 | FALSE | #N/A |\n"
            "| שלום |  |  | 1e+21 |  |  |\n\n"
            "## Rates (hidden)\n| 7 |\n| --- |\n\n"
            "## Empty"
        )

    def test_merged_cells_show_their_value_once(self, tmp_path: Path) -> None:
        book = pytest.importorskip("openpyxl").Workbook()
        sheet = book.active
        sheet["A1"], sheet["A2"], sheet["B2"] = "Title", "a", "b"
        sheet.merge_cells("A1:B1")
        book.save(tmp_path / "a.xlsx")
        assert text_of(tmp_path / "a.xlsx") == "## Sheet\n| Title |  |\n| --- | --- |\n| a | b |"

    def test_formulas(self, tmp_path: Path) -> None:
        """Stored results are shown; if a program stored none at all, the formulas are."""
        path = write_xlsx(tmp_path / "a.xlsx", ())
        sheet = '<row r="1"><c r="A1"><v>2</v></c><c r="B1"><f>A1*21</f>{}</c>{}</row>'
        for result, empty, shown in (
            ("<v>42</v>", '<c r="C1" t="str"><f>""</f><v></v></c>', "| 2 | 42 |"),
            ("<v />", "", "| 2 | =A1*21 |"),
            ("", "", "| 2 | =A1*21 |"),
        ):
            write_xlsx(path, (), sheet.format(result, empty))
            assert text_of(path).splitlines()[1] == shown

    def test_a_newer_workbook_under_an_older_name(self, tmp_path: Path) -> None:
        path = write_xlsx(tmp_path / "a.xls", (("x",),))
        assert text_of(path) == "## Staff\n| x |\n| --- |"

    def test_an_empty_workbook_has_no_text(self, tmp_path: Path) -> None:
        assert text_of(write_xlsx(tmp_path / "a.xlsx", ())) == ""
