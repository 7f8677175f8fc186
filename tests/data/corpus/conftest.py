"""Corpora in temporary folders; without tantivy only what needs no index is tested."""

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlm.data.corpus import Corpus, update_corpus

HAS_TANTIVY = importlib.util.find_spec("tantivy") is not None
collect_ignore = (
    []
    if HAS_TANTIVY
    else [
        "test_bad_corpora.py",
        "test_corpus.py",
        "test_grep.py",
        "test_covering.py",
        "test_guide.py",
        "test_index_command.py",
        "test_permissions.py",
        "test_runs.py",
        "test_sharing.py",
        "test_updates.py",
    ]
)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A small folder: two texts, and ten records."""
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("Hello world\nthe quick brown fox\n")
    (folder / "sub" / "b.md").write_text("Lazy dogs sleep.\n" * 20 + "quick fox jumps\n")
    records = [
        {
            "id": f"d{number}",
            "title": f"Title {number}",
            "text": f"record {number} über foxes\nsecond line {number}",
            "year": 1990 + number,
            "lang": "en" if number % 2 else "de",
        }
        for number in range(10)
    ]
    (folder / "rec.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    return folder


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Corpus]]:
    """Index sources into a corpus, and open it."""
    made: list[Corpus] = []

    def make(*sources: Path, name: str = "corpus") -> Corpus:
        update_corpus(tmp_path / name, sources)
        made.append(Corpus(tmp_path / name))
        return made[-1]

    yield make
    for each in made:
        each.close()
