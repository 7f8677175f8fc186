"""Documents, search and samples of a corpus."""

import json
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlm.data.corpus import Corpus, Fields, SearchRefused, SourceChanged, pieces, update_corpus
from rlm.data.corpus import corpus as corpus_module
from rlm.errors import ConfigError

Open = Callable[..., Corpus]


def test_documents_are_available_by_number_and_name(texts: Path, opened: Open) -> None:
    corpus = opened(texts)
    assert len(corpus) == len(list(corpus)) == 12
    assert corpus["docs/a.txt"] == "Hello world\nthe quick brown fox\n"
    assert corpus["docs/rec.jsonl#d3"] == "record 3 über foxes\nsecond line 3"
    for number, name, _ in corpus.names():
        assert corpus[number] == corpus[name]
    assert "docs/a.txt" in corpus
    assert 0 not in corpus
    assert "docs/none" not in corpus
    with pytest.raises(KeyError, match="no document 99 among 12 documents"):
        corpus[99]
    assert corpus.kinds() == [(".jsonl", 10), (".md", 1), (".txt", 1)]
    assert corpus.field_names() == ["id", "lang", "title", "year"]


def test_parts_of_a_document(texts: Path, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = opened(texts)
    assert corpus["docs/a.txt", 2:8] == "llo wo"
    assert corpus["docs/rec.jsonl#d3", 9:14] == "über"
    assert corpus["docs/rec.jsonl#d3", 10:14] == "ber"
    monkeypatch.setattr(corpus_module, "MAX_DOCUMENT_BYTES", 10)
    with pytest.raises(ConfigError, match=r"has 32 bytes, and at most 10 can be read at once"):
        corpus["docs/a.txt"]
    assert corpus["docs/a.txt", 0:100] == "Hello worl"


def test_search_ranks_and_shows_where(texts: Path, opened: Open) -> None:
    corpus = opened(texts)
    first, second = corpus.search("quick fox")
    assert (first.name, first.line, first.text) == ("docs/a.txt", 2, "the quick brown fox")
    assert (second.name, second.line, second.text) == ("docs/sub/b.md", 21, "quick fox jumps")
    assert first.score > second.score
    assert [hit.name for hit in corpus.search('"brown fox"')] == ["docs/a.txt"]
    assert [hit.name for hit in corpus.search("quick -brown")] == ["docs/sub/b.md"]
    assert [hit.name for hit in corpus.search("name:sub")] == ["docs/sub/b.md"]
    assert len(corpus.search("über", k=4)) == 4
    assert corpus.search("title 7")[0].name == "docs/rec.jsonl#d7"


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ({"lang": "en"}, [1, 3, 5, 7, 9]),
        ({"lang": ["en", "de"], "year": 1993}, [3]),
        ({"year": {">=": 1997}}, [7, 8, 9]),
        ({"year": {">": 1997.5, "<=": 1998}}, [8]),
        ({"year": {"<": 1992}, "lang": "de"}, [0]),
        ({"year": 1993.0}, [3]),
        ({"title": "Title 4"}, [4]),
        ({"title": "title"}, []),
        ({"year": "1993"}, []),
    ],
)
def test_search_with_conditions(
    texts: Path, opened: Open, where: dict[str, object], numbers: list[int]
) -> None:
    corpus = opened(texts)
    for query in ("foxes", ""):
        hits = corpus.search(query, k=100, where=where)
        assert sorted(hit.fields["year"] for hit in hits) == [1990 + each for each in numbers]


@pytest.mark.parametrize(
    "where",
    [
        {"year": {"~": 1}},
        {"year": {">": "a"}},
        {"year": {">": float("nan")}},
        {"year": {">": 1 << 70}},
        {"year": {}},
        {"year": []},
        {"year": [[1]]},
        {"year": None},
        {"": 1},
        {"a\nb": 1},
        {3: 1},
        {str(number): 1 for number in range(30)},
        {"lang": ["x"] * 200},
    ],
)
def test_malformed_conditions_are_refused(texts: Path, opened: Open, where: Any) -> None:
    with pytest.raises(SearchRefused):
        opened(texts).search("fox", where=where)


@pytest.mark.parametrize(
    "query",
    [
        *("", " ", '"', '"a', "AND OR (", "text:[a TO", "*", "nosuch:fox", "10:30 fox", "/(a+)+$/"),
        *("-", "\0", "\ud800", "a" * 1999, "(" * 1500, '"' * 1999, "+fox" * 400, "source:1"),
        *("fields.year:[1 TO 2]", "IN [a b c]", "fox~2", "fox^9", "'fox", "\\", "piece:>0"),
    ],
)
def test_any_query_gets_an_answer(texts: Path, opened: Open, query: str) -> None:
    assert isinstance(opened(texts).search(query), list)


def test_a_colon_is_punctuation_unless_it_names_a_field(texts: Path, opened: Open) -> None:
    corpus = opened(texts)
    assert corpus.search("note:quick why:brown")[0].name == "docs/a.txt"
    with pytest.raises(SearchRefused, match="2,000"):
        corpus.search("a" * 2001)
    with pytest.raises(SearchRefused, match="from 1 to"):
        corpus.search("a", k=0)


def test_a_long_document_is_found_once_at_the_right_line(
    tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1000)
    lines = [f"line number {number} of many" for number in range(1, 2001)]
    lines[1499] = "here is the needle"
    (tmp_path / "long.txt").write_text("\n".join(lines))
    corpus = opened(tmp_path / "long.txt")
    assert len(corpus) == 1
    assert [(hit.name, hit.line) for hit in corpus.search("needle")] == [("long.txt", 1500)]
    assert len(corpus.search("many")) == 1
    assert [(match.line, match.text) for match in corpus.grep("the n")] == [
        (1500, "here is the needle")
    ]


def test_the_same_seed_gives_the_same_sample(tmp_path: Path, opened: Open) -> None:
    (tmp_path / "many.jsonl").write_text(
        "".join(json.dumps({"text": f"t{number}"}) + "\n" for number in range(500))
    )
    corpus = opened(tmp_path / "many.jsonl")
    sample = corpus.sample(20, seed=1)
    assert sample == corpus.sample(20, seed=1) != corpus.sample(20, seed=2)
    assert len(set(sample)) == 20
    assert set(corpus.sample(1000)) == set(corpus)
    assert corpus.sample(0) == []
    with pytest.raises(ConfigError):
        corpus.sample(-1)


def test_only_changed_and_missing_files_are_reported_and_read_again(
    texts: Path, opened: Open, tmp_path: Path
) -> None:
    corpus = opened(texts)
    (texts / "a.txt").write_text("all new\n")
    (texts / "sub" / "b.md").unlink()
    with pytest.raises(SourceChanged, match=r"^docs/a.txt changed since it was indexed; run rlm"):
        corpus["docs/a.txt"]
    with pytest.raises(SourceChanged, match=r"^docs/sub/b.md can no longer be read; run rlm"):
        corpus["docs/sub/b.md"]
    assert "changed since it was indexed" in corpus.search("hello")[0].text
    assert len(corpus.grep("quick").changed) == 2
    done = update_corpus(corpus.path, [])
    assert (done.read_files, done.unchanged_files, done.removed_files) == (1, 1, 2)
    assert corpus["docs/a.txt"] == "all new\n"
    assert [hit.name for hit in corpus.search("new lazy")] == ["docs/a.txt"]
    assert "docs/sub/b.md" not in corpus


def test_a_file_replaced_by_a_link_is_not_followed(
    texts: Path, opened: Open, tmp_path: Path
) -> None:
    corpus = opened(texts)
    inside, secret = texts / "a.txt", tmp_path / "secret.txt"
    status = inside.stat()
    secret.write_text("S" * status.st_size)
    os.utime(secret, ns=(status.st_mtime_ns, status.st_mtime_ns))
    inside.unlink()
    inside.symlink_to(secret)
    with pytest.raises(SourceChanged):
        corpus["docs/a.txt"]
    assert corpus.grep("SSS") == []


def test_the_fields_of_records_can_be_chosen(tmp_path: Path) -> None:
    source = tmp_path / "dump.jsonl"
    source.write_text('{"b": "the body", "u": "x", "text": "other"}\n')
    update_corpus(tmp_path / "corpus", [source], Fields("b", "u"))
    with Corpus(tmp_path / "corpus") as corpus:
        assert corpus["dump.jsonl#x"] == "the body"
        assert [match.text for match in corpus.grep("bod.")] == ["the body"]
    with pytest.raises(ConfigError, match="was made with other fields"):
        update_corpus(tmp_path / "corpus", [source], Fields("text", None))


def test_readers_and_a_writer_work_concurrently(tmp_path: Path, opened: Open) -> None:
    folder = tmp_path / "growing"
    folder.mkdir()
    (folder / "0.txt").write_text("common word0")
    first = opened(folder)
    problems: list[BaseException] = []
    ended = threading.Event()

    def read() -> None:
        try:
            with Corpus(first.path) as mine:
                while not ended.is_set():
                    for hit in mine.search("common", k=5):
                        assert hit.id in mine
                    assert len(mine.grep("common")) >= 1
        except BaseException as error:
            problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for each in readers:
        each.start()
    for number in range(1, 12):
        (folder / f"{number}.txt").write_text(f"common word{number}")
        update_corpus(first.path, [])
    ended.set()
    for each in readers:
        each.join()
    assert problems == []
    assert len(first) == 12
    assert [hit.name for hit in first.search("word11")] == ["growing/11.txt"]


def test_fields_with_dots_can_be_compared(tmp_path: Path, opened: Open) -> None:
    rows = [
        {"id": "1", "text": "walrus", "user.id": 1, "user.name": "ann", "user.is.new": True},
        {"id": "2", "text": "walrus", "user.id": 2.5, "user.name": "bob", "userid": 1},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = opened(tmp_path / "rows.jsonl")
    assert "user.id" in corpus.field_names()
    for where, found in (
        ({"user.id": 1}, ["1"]),
        ({"user.id": {">": 1}}, ["2"]),
        ({"user.id": [1, 2.5]}, ["1", "2"]),
        ({"user.name": "bob"}, ["2"]),
        ({"user.is.new": True}, ["1"]),
    ):
        hits = corpus.search("walrus", where=where)
        assert sorted(hit.name.partition("#")[2] for hit in hits) == found
    assert corpus.search("walrus", where={"userid": 1})[0].fields["user.id"] == 2.5


def test_unknown_fields_are_refused(texts: Path, opened: Open) -> None:
    corpus = opened(texts)
    told = "no document has a field 'yaer'; fields: id, lang, title, year"
    with pytest.raises(SearchRefused) as raised:
        corpus.search("foxes", where={"yaer": 1990})
    assert str(raised.value) == told
    without = opened(texts / "a.txt", name="other")
    with pytest.raises(SearchRefused, match="no document has a field 'year'; fields: none"):
        without.search("fox", where={"year": 1})


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda corpus: corpus.search(5), "query must be a string, not int"),
        (lambda corpus: corpus.search(None), "query must be a string, not NoneType"),
        (lambda corpus: corpus.search("x", k="5"), "k must be an integer from 1 to 1,000"),
        (lambda corpus: corpus.search("x", k=True), "k must be an integer from 1 to 1,000"),
        (lambda corpus: corpus.search("x", k=2.0), "k must be an integer from 1 to 1,000"),
        (lambda corpus: corpus.search("x", where="year"), "where must be a dict of field names"),
        (lambda corpus: corpus.search("x", where=["year"]), "where must be a dict of field names"),
        (lambda corpus: corpus.search("x", where={5: 1}), "no document has a field '5'"),
        (lambda corpus: corpus.search("x", where={"year": math.nan}), "2**63, not nan"),
        (lambda corpus: corpus.search("x", where={"year": math.inf}), "2**63, not inf"),
        (lambda corpus: corpus.search("x", where={"year": 1 << 70}), "2**63, not 1180591620717"),
        (lambda corpus: corpus.search("x", where={"year": None}), "compare with strings, numbers"),
        (
            lambda corpus: corpus.search("x", where={"year": {"<": math.nan}}),
            "takes bounds such as",
        ),
        (lambda corpus: corpus.grep(None), "pattern must be a string, not NoneType"),
        (lambda corpus: corpus.grep(b"x"), "pattern must be a string, not bytes"),
        (lambda corpus: corpus.grep("x", max_matches="5"), "max_matches must be an integer"),
        (lambda corpus: corpus.grep("x", seconds="5"), "seconds must be a positive number"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    texts: Path, opened: Open, call: Callable[[Any], Any], told: str
) -> None:
    with pytest.raises(SearchRefused) as raised:
        call(opened(texts))
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda corpus: corpus.sample("3"),
        lambda corpus: corpus.sample(-1),
        lambda corpus: corpus.read(1, "0"),
        lambda corpus: corpus.read(1, 0, 1.5),
    ],
)
def test_invalid_names_and_numbers_are_refused(
    texts: Path, opened: Open, call: Callable[[Any], Any]
) -> None:
    with pytest.raises(ConfigError):
        call(opened(texts))
