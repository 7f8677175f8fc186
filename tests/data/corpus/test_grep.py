"""Grep over the files of a corpus: records, attacks, order, limits."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlm._util.limited import JobLimits
from rlm.data.corpus import Corpus, SearchRefused, grepping

Open = Callable[..., Corpus]


@pytest.fixture(autouse=True)
def few_seconds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(grepping, "_LIMITS", JobLimits(3.0, 512 << 20, 16 << 20))
    yield
    grepping._JOBS.close()


def test_matches_are_in_the_order_of_documents(
    texts: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grepping, "SPAN_BYTES", 40)
    corpus = opened(texts)
    found = corpus.grep("fox")
    assert [match.id for match in found] == sorted(corpus)
    assert found.complete
    assert found.changed == ()
    assert corpus.grep("fox", max_matches=3) == found[:3]
    assert corpus.grep("FOX") == []
    assert corpus.grep("FOX", ignore_case=True) == found
    assert corpus.grep("^quick.*jumps$") == found[-1:]


def test_records_are_searched_in_their_decoded_text(tmp_path: Path, opened: Open) -> None:
    rows = [
        '{"text": "a \\"quoted\\" word"}',
        '{"text": "caf\\u00e9 and \\u0041pple"}',
        '{"text": "tab\\there\\nnext line"}',
        '{"text": "plain", "other": "needle"}',
        '{"other": "needle"}',
        "needle",
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    corpus = opened(tmp_path / "rows.jsonl")

    def lines(pattern: str) -> list[tuple[int, int]]:
        return [(match.id, match.line) for match in corpus.grep(pattern)]

    assert lines('a "quoted" word') == [(1, 1)]
    assert lines("café") == [(2, 1)]
    assert lines("Apple") == [(2, 1)]
    assert lines("tab\there$") == [(3, 1)]
    assert lines("^next line") == [(3, 2)]
    assert lines("needle") == []
    assert lines("there.next") == []


SLOW = ["(a+)+$", "(a|a)*[bc]$", "(?:.*a){12}[bc]"]


@pytest.mark.parametrize("pattern", [f"(?!x){each}" for each in SLOW])
def test_a_pattern_that_takes_forever_is_stopped(
    tmp_path: Path, opened: Open, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grepping, "_LIMITS", JobLimits(1.0, 512 << 20, 16 << 20))
    (tmp_path / "attack.txt").write_text("a" * 200 + "!\n")
    corpus = opened(tmp_path / "attack.txt")
    with pytest.raises(SearchRefused, match="avoid nested repetitions"):
        corpus.grep(pattern)
    stopped = corpus.grep(pattern, seconds=0.3)
    assert (stopped, stopped.complete) == ([], False)


@pytest.mark.parametrize("pattern", SLOW)
def test_patterns_that_re2_supports_are_fast(tmp_path: Path, opened: Open, pattern: str) -> None:
    (tmp_path / "attack.txt").write_text("a" * 200 + "!\n")
    (tmp_path / "rows.jsonl").write_text('{"text": "' + "a" * 200 + '!"}\n')
    found = opened(tmp_path).grep(pattern)
    assert (found, found.complete) == ([], True)


@pytest.mark.parametrize("pattern", ["(", "[", "*", "(?P<a>", "a{99999999999999999999}", "\\"])
def test_malformed_patterns_are_refused(texts: Path, opened: Open, pattern: str) -> None:
    with pytest.raises(SearchRefused, match="is not a valid regular expression"):
        opened(texts).grep(pattern)


def test_limits_of_a_request_are_checked(texts: Path, opened: Open) -> None:
    corpus = opened(texts)
    for most in (0, -1, 10**9):
        with pytest.raises(SearchRefused, match="max_matches"):
            corpus.grep("a", max_matches=most)
    with pytest.raises(SearchRefused, match="2,000 characters"):
        corpus.grep("a" * 2001)


def test_a_deadline_ends_the_search(
    tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"text": "x"}) + "\n")
    corpus = opened(*sorted(tmp_path.glob("*.jsonl")))
    clock = iter(range(0, 10**6, 50))
    monkeypatch.setattr("rlm.data.corpus.grepping.time.monotonic", lambda: next(clock))
    assert not corpus.grep("y", seconds=1.0).complete


def test_files_in_many_encodings_can_be_searched(tmp_path: Path, opened: Open) -> None:
    folder = tmp_path / "kinds"
    folder.mkdir()
    (folder / "latin.txt").write_bytes(b"caf\xe9 needle\n")
    (folder / "crlf.txt").write_bytes(b"one\r\ntwo needle\r\n")
    (folder / "no end.txt").write_bytes(b"needle")
    (folder / "one long line.txt").write_bytes(b"x" * 3_000_000 + b"needle" + b"x" * 3_000_000)
    corpus = opened(folder)
    assert [(match.name, match.line) for match in corpus.grep("needle")] == [
        ("kinds/crlf.txt", 2),
        ("kinds/latin.txt", 1),
        ("kinds/no end.txt", 1),
        ("kinds/one long line.txt", 1),
    ]
    assert all(len(match.text) <= 300 for match in corpus.grep("needle"))
