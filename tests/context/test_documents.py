"""Documents become text: the rules with a stand-in, the formats with markitdown itself."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm.context import documents, store_context
from rlm.errors import ConfigError
from tests.context.helpers import make_tree, seen_by_worker
from tests.context.office import write_docx, write_epub, write_pdf, write_xlsx

SUFFIXES = [".pdf", ".docx", ".pptx", ".xlsx", ".xls", ".epub", ".msg", ".PDF"]


STAND_IN = """
import time
import types

class MarkItDownException(Exception):
    attempts = None

class MissingDependencyException(MarkItDownException):
    pass

def StreamInfo(*, extension):
    return extension

def failed(cause):
    error = MarkItDownException("many\\nlines")
    error.attempts = [types.SimpleNamespace(exc_info=(type(cause), cause, None))]
    return error

class MarkItDown:
    def __init__(self, **options):
        self.options, self.converters = options, []

    def register_converter(self, converter):
        self.converters.append(converter)

    def convert_stream(self, stream, *, stream_info):
        text = stream.read().decode()
        if text.startswith("fail: "):
            raise failed(ValueError(text))
        if text == "missing":
            raise failed(MissingDependencyException("a\\nlong\\ntext"))
        if text == "broken":
            raise ValueError("not readable")
        if text == "how":
            text = f"{self.options} {self.converters}"
        if text == "endless":
            time.sleep(10_000)
        if text == "memory":
            text = "x" * (1 << 40)
        if text == "memory inside":
            try:
                text = "x" * (1 << 40)
            except MemoryError as error:
                raise failed(error)
        if text == "long":
            text = "x" * (17 << 20)
        if text == "crash":
            import os
            os.abort()
        return types.SimpleNamespace(text_content=f"{stream_info} {text}" if text else " \\n")
"""
"""What we use of markitdown. A document `fail: words` fails, `missing` lacks a package, …"""


@pytest.fixture
def _stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Converted in the real processes, by a module that is found before the real one."""
    place = tmp_path / "installed"
    package = place / "markitdown"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(STAND_IN, "utf-8")
    converters = "def __getattr__(name):\n    return lambda: name\n"
    (package / "converters.py").write_text(converters, "utf-8")
    monkeypatch.syspath_prepend(place)
    monkeypatch.delitem(sys.modules, "markitdown", raising=False)
    documents._JOBS.close()
    yield
    documents._JOBS.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder without the stand-in."""
    made = tmp_path / "handed in"
    made.mkdir()
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
            "pip install 'recursivelm[documents]'"
        )


@pytest.mark.usefixtures("_stand_in")
def test_only_converters_of_documents_are_used(folder: Path) -> None:
    make_tree(folder, {"a.pdf": "one", "b.docx": "two", "c.txt": "three", "d.html": "four"})
    assert seen_by_worker(store_context(folder)) == {
        "a.pdf": ".pdf one",
        "b.docx": ".docx two",
        "c.txt": "three",
        "d.html": ".html four",
    }
    make_tree(folder, {"a.pdf": "how"})
    used = store_context(folder / "a.pdf").text()
    assert "'enable_builtins': False, 'enable_plugins': False" in used
    assert "'PdfConverter'" in used
    for name in ("ZipConverter", "AudioConverter", "YouTubeConverter"):
        assert name not in used


@pytest.mark.usefixtures("_stand_in")
def test_one_document_is_its_text(folder: Path) -> None:
    (folder / "a.pdf").write_text("one\nsecret", "utf-8")
    stored = store_context(folder / "a.pdf")
    assert (stored.kind, seen_by_worker(stored, 3)) == ("text", ".pdf one\nsecret")
    told = "a str of 15 characters in 2 lines, 8 on average; the text of a .pdf document."
    assert stored.description == told


@pytest.mark.usefixtures("_stand_in")
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.pdf", "", "a.pdf holds no text; if its pages are scanned, run OCR on it first"),
        ("a.pdf", "fail: no\nway", "could not be converted (ValueError: fail: no way); is it"),
        ("a.pdf", "broken", "could not be converted (ValueError: not readable); is it"),
        ("a.xls", "missing", "document; to read it, pip install 'markitdown[xls]'"),
        ("a.pdf", "memory", "takes more than 512 MiB of memory; hand in a part of it, or its"),
        ("a.pdf", "memory inside", "takes more than 512 MiB of memory; hand in a part of it"),
        ("a.pdf", "long", "its text has more than 16 MiB; hand in a part of it, or its text"),
        ("a.pdf", "crash", "could not be converted (the converter crashed); is it damaged"),
        ("a.msg", "missing", "document; to read it, pip install 'markitdown[outlook]'"),
    ],
)
def test_a_document_that_gives_no_text(folder: Path, name: str, content: str, words: str) -> None:
    make_tree(folder, {name: content})
    with pytest.raises(ConfigError) as caught:
        store_context(folder / name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("_stand_in")
def test_in_a_folder_such_documents_are_left_out(folder: Path) -> None:
    tree = {
        "a.pdf": "",
        "b.pdf": "fail: x",
        "c.xls": "missing",
        "d.txt": "text",
        "e.htm": "fail: <p>",
    }
    stored = store_context(make_tree(folder, tree))
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
