"""The rules for documents, with a stand-in that runs in the real processes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm._util.limited import Jobs
from rlm.context import store_context
from rlm.context.documents import converter, formats
from rlm.errors import ConfigError
from tests.context.documents.office import write_pptx
from tests.context.helpers import make_tree, seen_by_worker

SUFFIXES = [".pdf", ".docx", ".xlsx", ".xls", ".epub", ".msg", ".PDF"]


@pytest.fixture
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    jobs = Jobs("tests.context.documents.stand_in")
    monkeypatch.setattr(converter, "_JOBS", jobs)
    monkeypatch.setattr(converter, "missing_module", lambda _: None)
    yield
    jobs.close()


def without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in formats.FORMATS.values():
        for package in each.packages:
            monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_without_the_extra_a_document_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    without_the_extra(monkeypatch)
    path = tmp_path / f"report{suffix}"
    path.write_text("%PDF", "utf-8")
    for value in (path, [path]):
        with pytest.raises(ConfigError) as caught:
            store_context(value)
        assert str(caught.value) == (
            f"{path} is a {suffix.lower()} document; to read it, "
            "pip install 'recursivelm[documents]'"
        )


def test_presentations_are_converted_without_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_the_extra(monkeypatch)
    path = write_pptx(tmp_path / "a.pptx", ["<p:sp><a:p><a:r><a:t>Tides</a:t></a:r></a:p></p:sp>"])
    assert store_context(path).text() == "<!-- Slide number: 1 -->\n\nTides"


@pytest.mark.usefixtures("_stand_in")
def test_documents_in_a_folder_are_converted(folder: Path) -> None:
    make_tree(folder, {"a.pdf": "one", "b.docx": "two", "c.txt": "three", "d.html": "four"})
    assert seen_by_worker(store_context(folder)) == {
        "a.pdf": ".pdf one",
        "b.docx": ".docx two",
        "c.txt": "three",
        "d.html": ".html four",
    }


@pytest.mark.usefixtures("_stand_in")
def test_a_single_document_is_its_text(folder: Path) -> None:
    (folder / "a.pdf").write_text("one\nsecret", "utf-8")
    stored = store_context(folder / "a.pdf")
    assert (stored.kind, seen_by_worker(stored, 3)) == ("text", ".pdf one\nsecret")
    told = "a str of 15 characters in 2 lines, 8 on average; the text of a .pdf document."
    assert stored.description == told


@pytest.mark.usefixtures("_stand_in")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "a.pdf contains no text; if its pages are scanned, run OCR on it first"),
        ("fail: no\nway", "could not be converted (ValueError: fail: no way); is it damaged"),
        ("refuse: it is locked; unlock it", "a.pdf could not be converted: it is locked; unlock"),
        ("memory", "takes more than 512 MiB of memory; pass part of it, or its text"),
        ("long", "its text is larger than 16 MiB; pass part of it, or its text"),
        ("crash", "could not be converted (the converter crashed); is it damaged"),
        ("endless", "could not be converted: it takes more than 2 s; pass part of it"),
    ],
)
def test_a_document_without_text_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, content: str, words: str
) -> None:
    monkeypatch.setattr(converter, "_MIN_SECONDS", 2.0 if content == "endless" else 30.0)
    make_tree(folder, {"a.pdf": content})
    with pytest.raises(ConfigError) as caught:
        store_context(folder / "a.pdf")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("_stand_in")
def test_documents_without_text_in_a_folder_are_omitted(folder: Path) -> None:
    tree = {
        "a.pdf": "",
        "b.pdf": "fail: x",
        "c.xls": "refuse: it is locked",
        "d.txt": "text",
        "e.htm": "fail: <p>",
    }
    stored = store_context(make_tree(folder, tree))
    assert seen_by_worker(stored) == {"d.txt": "text", "e.htm": "fail: <p>"}
    assert dict(stored.skipped) == {
        "a.pdf": "document without text",
        "b.pdf": "document that could not be converted",
        "c.xls": "document that could not be converted",
    }
    assert "b.pdf could not be converted (ValueError: fail: x)" in stored.notices[0]
    assert stored.notices[1].endswith("c.xls could not be converted: it is locked")
    assert len(stored.notices) == 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "handed in"
    made.mkdir()
    return made
