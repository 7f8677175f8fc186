"""What counts as a corpus among the values that a context can be. Needs no index."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from rlm.data.corpus.folder import CorpusFolder
from rlm.data.given import GivenCorpus, given_data


def test_values_are_recognised_while_another_thread_imports_the_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "rlm.data.corpus.corpus"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # It has no names yet.
    assert [given_data(each) for each in ("text", {"a": 1}, ["b"])] == [None] * 3


def test_an_open_corpus_and_its_folder_are_recognised(tmp_path: Path) -> None:
    CorpusFolder(tmp_path / "corpus").create({})
    assert given_data(tmp_path / "corpus") == GivenCorpus(tmp_path / "corpus")
    module = pytest.importorskip("rlm.data.corpus.corpus")

    class Mine(module.Corpus):  # type: ignore[name-defined, misc]
        def __init__(self, path: Path) -> None:
            self.path = path

    assert given_data(Mine(tmp_path / "x")) == GivenCorpus(tmp_path / "x")
