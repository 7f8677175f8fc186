"""Documents become text: the rules with a stand-in, the formats with markitdown itself."""

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from rlm.context import store_context
from rlm.errors import ConfigError
from tests.context.helpers import make_tree, seen_by_worker
from tests.context.office import write_docx, write_epub, write_pdf, write_xlsx

SUFFIXES = [".pdf", ".docx", ".pptx", ".xlsx", ".xls", ".epub", ".msg", ".PDF"]


class StandIn:
    """What we use of markitdown. A document `fail: words` fails, `missing` lacks a package."""

    class MarkItDownException(Exception):
        attempts: list[Any]

    class MissingDependencyException(MarkItDownException):
        pass

    def __init__(self) -> None:
        self.made: list[dict[str, bool]] = []
        self.converters: list[str] = []

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        outer = self

        class MarkItDown:
            def __init__(self, **options: bool) -> None:
                outer.made.append(options)

            def register_converter(self, converter: str) -> None:
                outer.converters.append(converter)

            def convert_stream(self, stream: BinaryIO, *, stream_info: str) -> Any:
                text = stream.read().decode()
                if text.startswith("fail: "):
                    raise outer._failed(ValueError(text))
                if text == "missing":
                    raise outer._failed(outer.MissingDependencyException("a\nlong\ntext"))
                if text == "broken":
                    raise ValueError("not readable")
                return types.SimpleNamespace(
                    text_content=f"{stream_info} {text}" if text else " \n"
                )

        module = types.ModuleType("markitdown")
        vars(module).update(
            MarkItDown=MarkItDown,
            MarkItDownException=self.MarkItDownException,
            MissingDependencyException=self.MissingDependencyException,
            StreamInfo=lambda *, extension: extension,
        )
        converters = types.ModuleType("markitdown.converters")
        vars(converters).update(__getattr__=lambda name: lambda: name)
        monkeypatch.setitem(sys.modules, "markitdown", module)
        monkeypatch.setitem(sys.modules, "markitdown.converters", converters)

    def _failed(self, cause: Exception) -> Exception:
        error = self.MarkItDownException("many\nlines")
        error.attempts = [types.SimpleNamespace(exc_info=(type(cause), cause, None))]
        return error


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    made.install(monkeypatch)
    return made


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_without_the_extra_a_document_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setitem(sys.modules, "markitdown", None)
    path = tmp_path / f"report{suffix}"
    path.write_text("%PDF", "utf-8")
    for value in (path, [path]):
        with pytest.raises(ConfigError) as caught:
            store_context(value)
        assert str(caught.value) == (
            f"{path} is a {suffix.lower()} document; to read it, "
            "pip install 'rlm-engine[documents]'"
        )


def test_only_converters_of_documents_are_used(tmp_path: Path, stand_in: StandIn) -> None:
    make_tree(tmp_path, {"a.pdf": "one", "b.docx": "two", "c.txt": "three", "d.html": "four"})
    assert seen_by_worker(store_context(tmp_path)) == {
        "a.pdf": ".pdf one",
        "b.docx": ".docx two",
        "c.txt": "three",
        "d.html": ".html four",
    }
    assert stand_in.made == [{"enable_builtins": False, "enable_plugins": False}]
    assert "PdfConverter" in stand_in.converters
    assert not {"ZipConverter", "AudioConverter", "YouTubeConverter"} & set(stand_in.converters)


@pytest.mark.usefixtures("stand_in")
def test_one_document_is_its_text(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_text("one\nsecret", "utf-8")
    stored = store_context(tmp_path / "a.pdf")
    assert (stored.kind, seen_by_worker(stored, 3)) == ("text", ".pdf one\nsecret")
    told = "a str of 15 characters in 2 lines, 8 on average; the text of a .pdf document."
    assert stored.description == told


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.pdf", "", "a.pdf holds no text; if its pages are scanned, run OCR on it first"),
        ("a.pdf", "fail: no\nway", "could not be converted (ValueError: fail: no way); is it"),
        ("a.pdf", "broken", "could not be converted (ValueError: not readable); is it"),
        ("a.xls", "missing", "document; to read it, pip install 'markitdown[xls]'"),
        ("a.msg", "missing", "document; to read it, pip install 'markitdown[outlook]'"),
    ],
)
def test_a_document_that_gives_no_text(tmp_path: Path, name: str, content: str, words: str) -> None:
    make_tree(tmp_path, {name: content})
    with pytest.raises(ConfigError) as caught:
        store_context(tmp_path / name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("stand_in")
def test_in_a_folder_such_documents_are_left_out(tmp_path: Path) -> None:
    tree = {
        "a.pdf": "",
        "b.pdf": "fail: x",
        "c.xls": "missing",
        "d.txt": "text",
        "e.htm": "fail: <p>",
    }
    stored = store_context(make_tree(tmp_path, tree))
    assert seen_by_worker(stored) == {"d.txt": "text", "e.htm": "fail: <p>"}
    assert dict(stored.skipped) == {
        "a.pdf": "document without text",
        "b.pdf": "document that could not be converted",
        "c.xls": "document that needs an extra",
    }
    assert "b.pdf could not be converted (ValueError: fail: x)" in stored.notices[0]
    assert len(stored.notices) == 4


@pytest.mark.heavy
@pytest.mark.skipif(
    importlib.util.find_spec("markitdown") is None, reason="the extra `documents` is not installed"
)
@pytest.mark.filterwarnings("ignore")
class TestMarkItDown:
    def test_formats(self, tmp_path: Path) -> None:
        write_pdf(tmp_path / "a.pdf", ("The tide gate", "opens at 4471902"))
        write_docx(tmp_path / "b.docx", ("The lamp was replaced", "by Osei"))
        write_xlsx(tmp_path / "c.xlsx", (("name", "age"), ("Ann", "31")))
        write_epub(tmp_path / "d.epub", "A tale of tides")
        slides = pytest.importorskip("pptx").Presentation()
        slides.slides.add_slide(slides.slide_layouts[5]).shapes.title.text = "Spring tides"
        slides.save(str(tmp_path / "f.pptx"))
        make_tree(tmp_path, {"e.html": "<html><script>no()</script><h1>Hi</h1><p>there</p></html>"})
        seen = seen_by_worker(store_context(tmp_path))
        assert list(seen) == ["a.pdf", "b.docx", "c.xlsx", "d.epub", "e.html", "f.pptx"]
        for name, words in {
            "a.pdf": ["The tide gate", "opens at 4471902"],
            "b.docx": ["The lamp was replaced", "by Osei"],
            "c.xlsx": ["## Staff", "| name | age |", "| Ann | 31 |"],
            "d.epub": ["Tides", "A tale of tides"],
            "e.html": ["# Hi", "there"],
            "f.pptx": ["Spring tides"],
        }.items():
            print(name, repr(seen[name]))
            assert all(each in seen[name] for each in words)
        assert "no()" not in seen["e.html"]
        alone = store_context(tmp_path / "a.pdf")
        assert seen_by_worker(alone) == seen["a.pdf"]
        assert alone.description.endswith("; the text of a .pdf document.")

    def test_a_page_without_text(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="holds no text; if its pages are scanned"):
            store_context(write_pdf(tmp_path / "scan.pdf", ()))

    @pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.xlsx", "a.pptx", "a.epub"])
    def test_damaged(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"PK\x03\x04 this is nothing \xff\xfe" * 10)
        with pytest.raises(ConfigError, match="could not be converted") as caught:
            store_context(tmp_path / name)
        print(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("name", ["a.xls", "a.msg"])
    def test_formats_with_extras_of_their_own(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
        with pytest.raises(ConfigError) as caught:
            store_context(tmp_path / name)
        print(caught.value)
        assert "\n" not in str(caught.value)
