"""Sources that are named twice, contain one another, are missing, or can't be read for a while."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlm.context import files, store_context
from rlm.data.corpus import Corpus, update_corpus
from rlm.data.filesystem import skipping


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two folders with a file each, and a file."""
    for name, word in (("A", "walrus"), ("B", "seal")):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name.lower()}.txt").write_text(word)
    (tmp_path / "single.txt").write_text("single")
    return tmp_path


def names(corpus: Path) -> list[str]:
    with Corpus(corpus) as opened:
        return [name for _, name, _ in opened.names()]


def test_a_source_given_twice_counts_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    same = [Path("A"), Path("A"), Path("./A"), Path("B/../A"), home / "A"]
    assert update_corpus(home / "corpus", same).documents == 1
    assert update_corpus(home / "corpus", same).unchanged_files == 1
    assert names(home / "corpus") == ["A/a.txt"]


@pytest.mark.parametrize(
    "order",
    [["A", "A/a.txt", "A/sub"], ["A/sub", "A/a.txt", "A"], ["A/sub/deep.txt", "A/sub", "A"]],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_source_inside_another_is_covered_by_it(
    home: Path, order: list[str], at_once: bool
) -> None:
    (home / "A" / "sub").mkdir()
    (home / "A" / "sub" / "deep.txt").write_text("walrus too")
    sources = [home / each for each in order]
    for each in [sources] if at_once else [[each] for each in sources]:
        update_corpus(home / "corpus", each)
    assert sorted(names(home / "corpus")) == ["A/a.txt", "A/sub/deep.txt"]
    with Corpus(home / "corpus") as corpus:
        assert len(corpus.search("walrus")) == 2
    assert update_corpus(home / "corpus", []).unchanged_files == 2


@pytest.mark.parametrize("hidden", ["node_modules", "ignored"])
def test_a_source_ignored_by_the_outer_one_is_still_read(home: Path, hidden: str) -> None:
    (home / "A" / ".gitignore").write_text("ignored/\n")
    (home / "A" / hidden).mkdir()
    (home / "A" / hidden / "notes.txt").write_text("notes")
    update_corpus(home / "corpus", [home / "A", home / "A" / hidden / "notes.txt"])
    assert names(home / "corpus") == ["A/.gitignore", "A/a.txt", "notes.txt"]


@pytest.mark.parametrize("again", [[], ["B"]])
def test_a_source_that_is_gone_is_dropped_with_its_documents(home: Path, again: list[str]) -> None:
    update_corpus(home / "corpus", [home / "A", home / "B", home / "single.txt"])
    (home / "A").rename(home / "renamed")
    (home / "single.txt").unlink()
    done = update_corpus(home / "corpus", [home / each for each in again])
    assert done.gone_sources == [str(home / "A"), str(home / "single.txt")]
    assert done.removed_files == 2
    assert done.skipped.lines() == ()
    assert names(home / "corpus") == ["B/b.txt"]
    assert update_corpus(home / "corpus", []).gone_sources == []
    (home / "renamed").rename(home / "A")
    assert update_corpus(home / "corpus", []).documents == 1


def failing(target: Path, number: int, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(path: Any = ".", *arguments: Any, **named: Any) -> Any:
        if not isinstance(path, int) and os.fspath(path) == os.fspath(target):
            raise OSError(number, os.strerror(number))
        return real(path, *arguments, **named)

    return call


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("name", ["A", "A/sub", "A/a.txt", "single.txt"])
def test_documents_of_an_unreadable_source_are_kept(
    home: Path, number: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "A" / "sub").mkdir()
    (home / "A" / "sub" / "deep.txt").write_text("deep")
    update_corpus(home / "corpus", [home / "A", home / "single.txt"])
    before = names(home / "corpus")
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing(home / name, number, os.scandir))
        if (home / name).is_file():
            patch.setattr(os, "stat", failing(home / name, number, os.stat))
        done = update_corpus(home / "corpus", [])
    assert done.skipped[skipping.UNREADABLE] == 1
    assert f"left out: {home if '/' not in name else ''}" in done.skipped.lines()[0]
    assert name.rpartition("/")[2] in done.skipped.lines()[0]
    assert (done.gone_sources, done.removed_files) == ([], 0)
    assert names(home / "corpus") == before
    assert update_corpus(home / "corpus", []).unchanged_files == 3


@pytest.mark.parametrize("empty", [True, False])
def test_documents_of_an_unmounted_disk_are_kept(
    home: Path, empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, real = home / "disk", os.path.ismount
    (disk / "papers").mkdir(parents=True)
    (disk / "papers" / "a.txt").write_text("paper")
    mounted = {disk}
    monkeypatch.setattr(
        os.path, "ismount", lambda path: path in mounted or (path != disk and real(path))
    )
    source = disk if empty else disk / "papers"
    update_corpus(home / "corpus", [source])
    disk.rename(home / "elsewhere")
    disk.mkdir()
    mounted.clear()
    done = update_corpus(home / "corpus", [])
    assert done.skipped[skipping.NOT_MOUNTED] == 1
    assert (done.gone_sources, done.removed_files) == ([], 0)
    with Corpus(home / "corpus") as corpus:
        assert len(corpus) == 1
    disk.rmdir()
    (home / "elsewhere").rename(disk)
    mounted.add(disk)
    assert update_corpus(home / "corpus", []).unchanged_files == 1


def test_another_corpus_inside_a_source_is_omitted(home: Path) -> None:
    update_corpus(home / "A" / "other", [home / "B"])
    done = update_corpus(home / "corpus", [home / "A"])
    assert done.skipped[skipping.CORPUS] == 1
    assert done.skipped.lines() == ("1 corpus left out: other (name its sources instead)",)
    assert names(home / "corpus") == ["A/a.txt"]


def test_a_corpus_inside_a_context_of_files_is_omitted(home: Path) -> None:
    update_corpus(home / "A" / "other", [home / "B"])
    for given in (home / "A", files("**", root=home / "A"), [home / "A", home / "B"]):
        stored = store_context(given)
        assert [name.rpartition("/")[2] for name in stored.documents] in (
            ["a.txt"],
            ["a.txt", "b.txt"],
        )
        assert [each.reason for each in stored.skipped] == [skipping.CORPUS]
