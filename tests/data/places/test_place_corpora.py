"""`rlm index` of an object store: fetched into the corpus, and updated there."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm import ConfigError
from rlm.data.corpus import Corpus, update_corpus
from rlm.data.places import place
from tests.data.places.object_store import object_store, put


@pytest.fixture
def store() -> Iterator[Any]:
    with object_store() as client:
        put(client, "logs", **{"papers/birds.txt": "Terns migrate.", "papers/fish.txt": "Eels."})
        yield client


def names(path: Path) -> list[str]:
    with Corpus(path) as corpus:
        return sorted(hit.name for hit in corpus.search("terns OR eels OR whales", k=9))


def test_a_place_is_indexed_and_updated(store: Any, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    done = update_corpus(corpus, [place("s3://logs/papers/")])
    assert (done.documents, names(corpus)) == (2, ["papers/birds.txt", "papers/fish.txt"])
    store.delete_object(Bucket="logs", Key="papers/fish.txt")
    put(store, "logs", **{"papers/whales.txt": "Whales sing."})
    done = update_corpus(corpus, [])
    assert (done.documents, done.unchanged_files, done.removed_files) == (1, 1, 1)
    assert names(corpus) == ["papers/birds.txt", "papers/whales.txt"]


def test_a_single_object_can_be_indexed(store: Any, tmp_path: Path) -> None:
    put(store, "logs", **{"dump.jsonl": '{"id": "x", "text": "Eels and terns"}\n'})
    update_corpus(tmp_path / "corpus", [place("s3://logs/dump.jsonl")])
    assert names(tmp_path / "corpus") == ["dump.jsonl#x"]


def test_a_failing_store_leaves_the_corpus_unchanged(store: Any, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    update_corpus(corpus, [place("s3://logs/papers/")])
    store.delete_object(Bucket="logs", Key="papers/fish.txt")
    store.delete_object(Bucket="logs", Key="papers/birds.txt")
    with pytest.raises(ConfigError, match="nothing found at s3://logs/papers/"):
        update_corpus(corpus, [])
    assert len(names(corpus)) == 2


def test_a_secret_in_an_address_is_not_stored(store: Any, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    secret = place("s3://logs/papers/", options={"secret": "given-s3cret", "key": "AKIAGIVEN"})
    update_corpus(corpus, [secret])
    for path in corpus.rglob("*"):
        assert path.is_dir() or b"given-s3cret" not in path.read_bytes()
    done = update_corpus(corpus, [])
    (line,) = done.skipped.lines()
    assert line == (
        "1 place whose address is not kept left out: s3://logs/papers/ (it may hold a secret: name "
        "it again to fetch what changed)"
    )
    assert len(names(corpus)) == 2


def test_the_index_command_accepts_a_place(store: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rlm", "index", "s3://logs/papers/", "-o", "corpus"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "2 documents indexed" in ended.stderr
    wrong = [*command[:3], "index", "s3a://logs/papers/", "-o", "corpus"]
    refused = subprocess.run(wrong, capture_output=True, text=True, cwd=tmp_path)
    assert refused.returncode == 2
    assert "unknown scheme s3a://; write s3://logs/papers/" in refused.stderr
