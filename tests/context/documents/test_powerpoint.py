"""Presentations: what each slide shows and says, in order. Needs no library."""

from pathlib import Path

from tests.context.documents.helpers import text_of
from tests.context.documents.office import write_pptx

TITLE = '<p:nvSpPr><p:nvPr><p:ph type="title"/></p:nvPr></p:nvSpPr>'


def paragraph(text: str, level: int = 0) -> str:
    return f'<a:p><a:pPr lvl="{level}"/><a:r><a:t>{text}</a:t></a:r></a:p>'


def shape(*paragraphs: str, head: str = "") -> str:
    return f"<p:sp>{head}<p:txBody>{''.join(paragraphs)}</p:txBody></p:sp>"


def test_titles_levels_and_groups(tmp_path: Path) -> None:
    group = f"<p:grpSp>{shape(paragraph('in a group'))}</p:grpSp>"
    slide = shape(paragraph("Spring  tides"), head=TITLE)
    slide += shape(paragraph("first"), paragraph("second", 1)) + group
    path = write_pptx(tmp_path / "a.pptx", [slide, f"hidden:{shape(paragraph('secret'))}", ""])
    assert text_of(path) == (
        "<!-- Slide number: 1 -->\n\n# Spring tides\n\nfirst\n  second\n\nin a group\n\n"
        "<!-- Slide number: 2 (hidden) -->\n\nsecret\n\n"
        "<!-- Slide number: 3 -->"
    )


def test_line_breaks_fields_and_right_to_left_text(tmp_path: Path) -> None:
    text = "<a:p><a:r><a:t>שלום</a:t></a:r><a:br/><a:fld><a:t>7</a:t></a:fld></a:p>"
    path = write_pptx(tmp_path / "a.pptx", [shape(text)])
    assert text_of(path).endswith("\n\nשלום\n7")


def test_tables_and_pictures(tmp_path: Path) -> None:
    cells = "".join(
        f"<a:tr>{''.join(f'<a:tc><a:txBody>{paragraph(each)}</a:txBody></a:tc>' for each in row)}"
        "</a:tr>"
        for row in (("a", "b|c"), ("1", "2"))
    )
    table = f"<p:graphicFrame><a:graphic><a:tbl>{cells}</a:tbl></a:graphic></p:graphicFrame>"
    picture = '<p:pic><p:nvPicPr><p:cNvPr id="1" name="P" descr="A lamp"/></p:nvPicPr></p:pic>'
    path = write_pptx(tmp_path / "a.pptx", [table + picture])
    assert text_of(path).partition("-->\n\n")[2] == (
        "| a | b\\|c |\n| --- | --- |\n| 1 | 2 |\n\n![A lamp](image)"
    )


def test_notes_charts_and_diagrams(tmp_path: Path) -> None:
    body = '<p:nvSpPr><p:nvPr><p:ph type="body" idx="1"/></p:nvPr></p:nvSpPr>'
    number = '<p:nvSpPr><p:nvPr><p:ph type="sldNum"/></p:nvPr></p:nvSpPr>'
    notes = shape(paragraph("Say hello."), head=body) + shape(paragraph("12"), head=number)
    series = "".join(
        f"<c:ser><c:tx><c:strRef><c:strCache><c:pt idx='0'><c:v>{name}</c:v></c:pt></c:strCache>"
        "</c:strRef></c:tx><c:cat><c:strRef><c:strCache><c:pt idx='0'><c:v>East</c:v></c:pt>"
        "<c:pt idx='1'><c:v>West</c:v></c:pt></c:strCache></c:strRef></c:cat>"
        f"<c:val><c:numRef><c:numCache><c:pt idx='{at}'><c:v>{value}</c:v></c:pt></c:numCache>"
        "</c:numRef></c:val></c:ser>"
        for name, at, value in (("Q1", 0, "19.2"), ("Q2", 1, "7"))
    )
    title = f"<c:title><c:tx><c:rich>{paragraph('Sales')}</c:rich></c:tx></c:title>"
    chart = f"<c:chartSpace SPACES><c:chart>{title}<c:plotArea>{series}</c:plotArea></c:chart>"
    points = "".join(
        f"<dgm:pt><dgm:t>{paragraph(each)}</dgm:t></dgm:pt>" for each in ("plan", "build")
    )
    related = {
        "notesSlides/n1.xml": ("notesSlide", f"<p:notes SPACES>{notes}</p:notes>"),
        "charts/c1.xml": ("chart", f"{chart}</c:chartSpace>"),
        "diagrams/d1.xml": ("diagramData", f"<dgm:dataModel SPACES>{points}</dgm:dataModel>"),
    }
    frames = '<p:graphicFrame><c:chart r:id="chart"/></p:graphicFrame>'
    frames += '<p:graphicFrame><dgm:relIds r:dm="diagramData"/></p:graphicFrame>'
    path = write_pptx(tmp_path / "a.pptx", [frames], related)
    assert text_of(path).partition("-->\n\n")[2] == (
        "### Chart: Sales\n\n| Category | Q1 | Q2 |\n| --- | --- | --- |\n"
        "| East | 19.2 |  |\n| West |  | 7 |\n\nplan\nbuild\n\n### Notes:\nSay hello."
    )


def test_slides_without_text_give_none(tmp_path: Path) -> None:
    assert text_of(write_pptx(tmp_path / "a.pptx", ["", shape(paragraph(" "))])) == ""
