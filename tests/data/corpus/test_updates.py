"""After any additions, changes, removals or kills, an updated corpus equals a new one."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm.data.corpus import BatchSize, Corpus, catalog, fulltext, pieces, update_corpus
from rlm.data.filesystem import skipping

WORDS = ("ant", "bee", "cat", "dog", "eel", "fox")
NAMES = ("a.txt", "b.txt", "sub/c.txt", "d.jsonl", "e.jsonl", "f.bin")

contents = st.lists(st.sampled_from(WORDS), max_size=12)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(NAMES), contents),
        st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just([])),
        st.tuples(st.just("update"), st.just(""), st.just([])),
        st.tuples(
            st.just("kill"),
            st.sampled_from(["before commit", "between", "after catalog", "in a file"]),
            contents,
        ),
    ),
    max_size=12,
)


class _Killed(BaseException):
    """The process ends here."""


def write(path: Path, words: list[str], number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        rows = [{"id": at, "text": word, "n": number} for at, word in enumerate(words)]
        path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    elif path.suffix == ".bin":
        path.write_bytes(b"\0" + " ".join(words).encode())
    else:
        path.write_text("\n".join(words))
    # Writes within one tick of the clock could not be distinguished.
    os.utime(path, ns=(number * 10**9, number * 10**9))


def seen(corpus: Corpus) -> dict[str, Any]:
    return {
        "documents": {name: corpus[number] for number, name, _ in corpus.names()},
        "len": len(corpus),
        "bytes": corpus.size_bytes,
        "kinds": sorted(corpus.kinds()),
        **{word: sorted(hit.name for hit in corpus.search(word, k=100)) for word in WORDS},
        "pieces": corpus._index._searcher.num_docs,
    }


def kill(corpus: Path, source: Path, when: str, after: int) -> None:
    """Update, and end as a killed process does: nothing more is committed anywhere."""
    count = 0

    def dying(then: Callable[..., Any], *, first: bool) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if first and count > after:
                raise _Killed
            result = then(*arguments, **named)
            if not first and count > after:
                raise _Killed
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        home: Any
        home, name, first = {
            "before commit": (fulltext.FullTextWriter, "commit", True),
            "between": (fulltext.FullTextWriter, "commit", False),
            "after catalog": (catalog.Catalog, "finish_batch", False),
            "in a file": (fulltext.FullTextWriter, "add", False),
        }[when]
        patch.setattr(home, name, dying(getattr(home, name), first=first))
        try:
            update_corpus(corpus, [source], batch=BatchSize(bytes=8))
        except _Killed:
            return


@given(steps)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_an_updated_corpus_equals_a_new_one(steps: list[tuple[str, str, list[str]]]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pieces, "PIECE_BYTES", 8)
            source = folder / "docs"
            source.mkdir()
            for number, (what, name, words) in enumerate(steps, 1):
                if what == "write":
                    write(source / name, words, number)
                elif what == "delete":
                    (source / name).unlink(missing_ok=True)
                elif what == "kill":
                    kill(folder / "corpus", source, name, len(words))
                else:
                    update_corpus(folder / "corpus", [source], batch=BatchSize(bytes=16))
            update_corpus(folder / "corpus", [source])
            update_corpus(folder / "fresh", [source])
            with Corpus(folder / "corpus") as updated, Corpus(folder / "fresh") as fresh:
                assert seen(updated) == seen(fresh)
    finally:
        shutil.rmtree(folder)


def test_a_killed_update_continues_in_the_middle_of_a_file(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"id": n, "text": f"row{n}"}) + "\n" for n in range(100)))
    kill(tmp_path / "corpus", source, "in a file", 60)
    done = update_corpus(tmp_path / "corpus", [source])
    assert done.resumed_bytes > 0
    assert done.documents < 100
    with Corpus(tmp_path / "corpus") as corpus:
        assert len(corpus) == 100
        assert [len(corpus.search(f"row{n}")) for n in range(100)] == [1] * 100


def test_a_cancelled_update_keeps_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps({"text": f"row{n}"}) + "\n" for n in range(1000)))
    wanted = iter([True, True, True])
    ticks = iter(range(10_000))
    monkeypatch.setattr("rlm.data.corpus.indexing.time.monotonic", lambda: next(ticks) * 0.2)
    done = update_corpus(
        tmp_path / "corpus",
        [source],
        is_wanted=lambda: next(wanted, False),
        batch=BatchSize(seconds=1e9),
    )
    assert not done.finished
    assert 0 < done.documents < 1000
    with Corpus(tmp_path / "corpus") as corpus:
        assert len(corpus) == done.documents
    rest = update_corpus(tmp_path / "corpus", [])
    assert rest.finished
    assert rest.documents == 1000 - done.documents


def test_a_file_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "log.txt"
    source.write_text("first line\n")
    add = fulltext.FullTextWriter.add

    def growing(self: fulltext.FullTextWriter, piece: fulltext.Piece) -> None:
        source.write_text("first line\nsecond line\n")
        add(self, piece)

    monkeypatch.setattr(fulltext.FullTextWriter, "add", growing)
    done = update_corpus(tmp_path / "corpus", [source])
    assert done.skipped[skipping.CHANGED] == 1
    monkeypatch.undo()
    update_corpus(tmp_path / "corpus", [])
    with Corpus(tmp_path / "corpus") as corpus:
        assert corpus["log.txt"] == "first line\nsecond line\n"
        assert len(corpus.search("second")) == 1


def test_a_byte_order_mark_in_json_lines_loses_no_record(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_bytes(
        b'\xef\xbb\xbf{"id": 1, "text": "walrus"}\n{"id": 2, "text": "walrus two"}\n'
    )
    done = update_corpus(tmp_path / "corpus", [source])
    assert (done.documents, done.skipped[skipping.NO_RECORD]) == (2, 0)
    with Corpus(tmp_path / "corpus") as corpus:
        assert corpus["rows.jsonl#1"] == "walrus"
        assert len(corpus.search("walrus")) == 2
        assert [match.name for match in corpus.grep("^walrus")] == ["rows.jsonl#1", "rows.jsonl#2"]
        assert len(corpus.grep("wa.rus")) == 2
