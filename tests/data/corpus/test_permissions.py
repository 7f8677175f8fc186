"""Who may read a corpus; errors for others never suggest removing it."""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlm.data.corpus import Corpus, fulltext, is_corpus, update_corpus
from rlm.data.corpus.folder import CorpusFolder
from rlm.data.corpus.fulltext import can_lock
from rlm.data.places import place
from rlm.errors import ConfigError
from tests.data.places.web_server import web_server

NOBODY = 65534
Open = Callable[..., Corpus]


@contextmanager
def another_user() -> Generator[None, None, None]:
    """Act as a user without rights; one who is not root already has none in folders of mode 555."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared(texts: Path) -> Iterator[Path]:
    """A corpus of sources that everybody can read, and nobody else can write."""
    home = Path(tempfile.mkdtemp())
    home.chmod(0o755)
    shutil.copytree(texts, home / "docs")
    before = os.umask(0o022)
    try:
        update_corpus(home / "corpus", [home / "docs"])
        for each in (home / "corpus", home / "corpus" / "index"):
            each.chmod(0o555)
        yield home / "corpus"
    finally:
        os.umask(before)
        for each in (home / "corpus", home / "corpus" / "index"):
            each.chmod(0o755)
        shutil.rmtree(home)


def test_a_reader_needs_no_permission_to_write(shared: Path) -> None:
    for each in (shared / "index").iterdir():
        each.chmod(0o444)
    with another_user(), Corpus(shared) as opened:
        assert not can_lock(shared / "index")
        assert len(opened.search("quick")) == 2
        assert opened["docs/a.txt"] == "Hello world\nthe quick brown fox\n"


def test_a_reader_that_cannot_lock_sees_new_documents(
    texts: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fulltext, "can_lock", lambda path: False)
    reading = opened(texts)
    for number in range(5):
        (texts / f"new{number}.txt").write_text(f"walrus {number}")
        update_corpus(reading.path, [])
        assert len(reading.search("walrus")) == number + 1
    links = reading._index._links
    assert links is not None
    assert links.path.exists()
    reading.close()
    assert not links.path.exists()


def test_all_files_of_a_corpus_have_the_same_mode(texts: Path, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        update_corpus(tmp_path / "corpus", [texts])
        (texts / "new.txt").write_text("new")
        update_corpus(tmp_path / "corpus", [])
    finally:
        os.umask(before)
    files = [each for each in (tmp_path / "corpus").rglob("*") if each.is_file()]
    assert len(files) > 8
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o640}


def test_a_corpus_becomes_private_before_files_are_fetched(tmp_path: Path) -> None:
    folder = CorpusFolder(tmp_path / "corpus")
    folder.create({})
    folder.make_private()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    folder.places.mkdir()
    folder.path.chmod(0o750)  # The owner decides otherwise.
    folder.make_private()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o750


def test_a_corpus_with_fetched_files_is_private(
    texts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus = texts / "corpus"
    update_corpus(corpus, [texts])
    assert stat.S_IMODE(corpus.stat().st_mode) & 0o077 != 0
    with web_server() as server:
        server.pages(**{"notes.txt": b"walrus"})
        update_corpus(corpus, [texts, place(f"{server.url}/notes.txt")])
        assert stat.S_IMODE(corpus.stat().st_mode) == 0o700
        done = update_corpus(corpus, [])
    assert (done.unchanged_files, done.removed_files, done.gone_sources) == (4, 0, [])
    with Corpus(corpus) as opened:
        assert [hit.name for hit in opened.search("walrus")] == ["notes.txt"]


@pytest.mark.parametrize("name", ["corpus.json", "catalog.sqlite", "index/meta.json"])
def test_an_unreadable_corpus_file_is_named(shared: Path, name: str) -> None:
    (shared / name).chmod(0)
    with another_user():
        assert is_corpus(shared)
        with pytest.raises(ConfigError, match=f"no permission to read .*{name}; change its mode"):
            Corpus(shared)


def test_a_closed_corpus_says_so(texts: Path, opened: Open) -> None:
    closed = opened(texts)
    closed.close()
    for action in (
        lambda: closed.search("quick"),
        lambda: closed.grep("quick"),
        lambda: closed[1],
        lambda: len(closed),
        lambda: list(closed),
    ):
        with pytest.raises(ConfigError, match=r"was closed; open it again with Corpus"):
            action()
    closed.close()


@pytest.mark.parametrize("text", ['{"name": "shakespeare"}', "[]", "no JSON", ""])
def test_a_corpus_file_of_another_program_is_not_modified(
    tmp_path: Path, texts: Path, text: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "corpus.json").write_text(text)
    for action in (lambda: Corpus(other), lambda: update_corpus(other, [texts])):
        with pytest.raises(
            ConfigError, match=r"is not a corpus: rlm index did not write its corpus\.json"
        ):
            action()
    assert [each.name for each in other.iterdir()] == ["corpus.json"]


def test_a_refused_folder_is_left_unchanged(texts: Path) -> None:
    before = sorted(texts.rglob("*"))
    with pytest.raises(ConfigError, match="contains 3 other files and is not a corpus"):
        update_corpus(texts, [texts])
    assert sorted(texts.rglob("*")) == before
