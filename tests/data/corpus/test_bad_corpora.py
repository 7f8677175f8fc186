"""Damaged corpora, other versions, locks, and sources of every kind: one clear line each."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from rlm.data.corpus import Corpus, is_corpus, update_corpus
from rlm.data.corpus.folder import CorpusFolder
from rlm.data.filesystem import skipping
from rlm.errors import ConfigError

Open = Callable[..., Corpus]


def one_line(error: ConfigError) -> str:
    text = str(error)
    assert "\n" not in text
    assert len(text) < 600
    return text


def use(path: Path) -> None:
    with Corpus(path) as corpus:
        list(corpus)
        corpus.search("quick")
        corpus.grep("quick")


@pytest.mark.parametrize("how", ["empty", "half", "garbage", "missing"])
def test_a_damaged_corpus_file_is_reported_in_one_line(texts: Path, opened: Open, how: str) -> None:
    whole = opened(texts).path
    files = sorted(
        each.relative_to(whole)
        for each in whole.rglob("*")
        if each.is_file() and each.name != "lock"
    )
    assert len(files) > 5
    told = 0
    for name in files:
        copy = whole.with_name("copy")
        shutil.copytree(whole, copy)
        damage(copy / name, how)
        for action in (lambda: use(copy), lambda: update_corpus(copy, [texts])):  # noqa: B023
            try:
                action()
            except ConfigError as error:
                one_line(error)
                told += 1
        shutil.rmtree(copy)
    assert told > 5


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "half": data[: len(data) // 2]}.get(how, os.urandom(3000)))


def test_another_version_is_reported_in_one_line(texts: Path, opened: Open) -> None:
    path = opened(texts).path
    (path / "corpus.json").write_text(json.dumps({"format": "rlm-corpus", "version": 2}))
    for action in (lambda: Corpus(path), lambda: update_corpus(path, [texts])):
        with pytest.raises(ConfigError, match="has version 2 of the format, and this rlm reads"):
            action()
    assert is_corpus(path)


def test_a_folder_that_is_not_a_corpus_is_refused(tmp_path: Path, texts: Path) -> None:
    assert not is_corpus(texts)
    assert not is_corpus(tmp_path / "none")
    with pytest.raises(
        ConfigError, match=r"is not a corpus: it has no corpus\.json; create one with"
    ):
        Corpus(texts)
    with pytest.raises(
        ConfigError, match="contains 3 other files and is not a corpus; choose a new folder"
    ):
        update_corpus(texts, [texts / "a.txt"])
    assert sorted(each.name for each in texts.iterdir()) == ["a.txt", "rec.jsonl", "sub"]
    with pytest.raises(ConfigError, match="no such file or folder"):
        update_corpus(tmp_path / "corpus", [tmp_path / "none"])
    with pytest.raises(ConfigError, match="is not a corpus"):
        update_corpus(tmp_path / "corpus", [])
    assert not (tmp_path / "corpus").exists()


def test_only_one_process_can_write(texts: Path, opened: Open) -> None:
    path = opened(texts).path
    with (
        CorpusFolder(path).locked(),
        pytest.raises(ConfigError, match="another process is writing to"),
    ):
        update_corpus(path, [])
    use(path)


def test_ignored_and_unreadable_files_are_omitted(tmp_path: Path, opened: Open) -> None:
    folder = tmp_path / "mixed"
    (folder / "node_modules").mkdir(parents=True)
    (folder / "node_modules" / "x.txt").write_text("tool")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "a.log").write_text("ignored")
    (folder / "empty.txt").touch()
    (folder / "binary.dat").write_bytes(b"\0\1")
    (folder / "wide.txt").write_text("wide", "utf-16")
    (folder / "paper.PDF").write_bytes(b"%PDF-1.7")
    (folder / "good.txt").write_text("good")
    (folder / "link.txt").symlink_to(folder / "good.txt")
    (folder / "out.txt").symlink_to(tmp_path.parent)
    (folder / "loop.txt").symlink_to(folder / "loop.txt")
    (folder / "secret.txt").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(folder / "socket"))
        done = update_corpus(tmp_path / "corpus", [folder])
    counts = {
        skipping.TOOL_FOLDER: 1,
        skipping.IGNORED: 1,
        skipping.EMPTY: 1,
        skipping.BINARY: 1,
        skipping.NOT_UTF8: 1,
        skipping.NOT_PLAIN: 1,
        skipping.FILE_LINK: 1,
        skipping.OUTER_LINK: 2,
        skipping.BROKEN_LINK: 1,
        skipping.SPECIAL: 2,
    }
    assert {reason: done.skipped[reason] for reason in counts} == counts
    with Corpus(tmp_path / "corpus") as corpus:
        assert [name for _, name, _ in corpus.names()] == ["mixed/.gitignore", "mixed/good.txt"]


def test_hostile_file_names_are_indexed(tmp_path: Path, opened: Open) -> None:
    folder = tmp_path / "names"
    folder.mkdir()
    names = [
        "new\nline.txt",
        "quote'\"; drop table sources;--.txt",
        "\x1b[31m.txt",
        "-rf",
        "é" * 100,
    ]
    for name in names:
        (folder / name).write_text(f"content of {names.index(name)}")
    (folder / os.fsdecode(b"bytes\xff.txt")).write_text("content of bytes")
    corpus = opened(folder)
    assert len(corpus) == len(names) + 1
    for number, name, _ in corpus.names():
        name.encode()
        assert corpus[number].startswith("content of")
    assert {corpus[f"names/{name}"] for name in names} == {
        f"content of {number}" for number in range(len(names))
    }
    assert len(corpus.grep("content")) == len(names) + 1
    assert len(corpus.search("content")) == len(names) + 1
    assert update_corpus(corpus.path, []).unchanged_files == len(names) + 1


def test_a_corpus_inside_its_source_is_not_indexed(texts: Path) -> None:
    update_corpus(texts / "corpus", [texts])
    done = update_corpus(texts / "corpus", [texts])
    assert (done.unchanged_files, done.found_files) == (3, 3)


def test_roots_with_the_same_name_are_distinguished(tmp_path: Path, opened: Open) -> None:
    for parent in ("one", "two"):
        (tmp_path / parent / "docs").mkdir(parents=True)
        (tmp_path / parent / "docs" / "a.txt").write_text(parent)
    corpus = opened(tmp_path / "one" / "docs", tmp_path / "two" / "docs")
    assert corpus["docs/a.txt"] == "one"
    assert corpus["docs-2/a.txt"] == "two"


def test_without_tantivy_the_error_says_what_to_install(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tantivy", None)
    with pytest.raises(ConfigError, match=r"pip install 'recursivelm\[corpus\]'"):
        update_corpus(tmp_path / "corpus", [texts])
