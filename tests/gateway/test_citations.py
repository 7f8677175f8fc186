"""Citations: what a model claims, and what is true of it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.data.filesystem.denial import Denials
from rlm.engine.answer_types import AnswerType, answer_type
from rlm.gateway import citations as citations_module
from rlm.gateway.citations import CitedFiles, Claim, read_answer
from rlm.gateway.files import MAX_BYTES, MAX_LINES, Loaded
from rlm.gateway.paths import Root
from rlm.gateway.sessions import Handle

TEXT = (
    "def first():\n    return 1\n\n\ndef second():\n    return 2\n\n\ndef third():\n    return 1\n"
)


def library(*texts: str | bytes, names: tuple[str, ...] = ("a.py", "lib/b.py")) -> CitedFiles:
    root = Root(Path(__file__).parent, "tests", Denials())
    root.close()
    files = {}
    for number, (name, text) in enumerate(zip(names, texts, strict=False)):
        data = text.encode() if isinstance(text, str) else text
        files[name] = Loaded(Handle(f"h_{number}", root, (name,)), data, "v")
    return CitedFiles(files)


def lines_of(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(each["start_line"], each["end_line"]) for each in found]


def test_a_quote_found_in_the_claimed_lines_is_kept_with_its_exact_lines() -> None:
    found, dropped = library(TEXT).checked([Claim("a.py", "return 2", 1, 9)], MAX_BYTES)
    assert (lines_of(found), dropped) == ([(6, 6)], 0)
    assert found[0]["sha256"] == hashlib.sha256(b"    return 2\n").hexdigest()
    assert found[0]["quote"] == "return 2"


def test_wrong_lines_are_corrected_if_the_quote_occurs_once() -> None:
    books = library(TEXT)
    once = Claim("a.py", "def second():\n    return 2", 90, 91)
    assert lines_of(books.checked([once], MAX_BYTES)[0]) == [(5, 6)]
    twice = Claim("a.py", "return 1", 5, 6)
    assert books.checked([twice], MAX_BYTES) == ([], 1)
    assert lines_of(books.checked([Claim("a.py", "return 1", 10, 10)], MAX_BYTES)[0]) == [(10, 10)]
    assert books.checked([Claim("a.py", "return 1")], MAX_BYTES) == ([], 1)


@pytest.mark.parametrize(
    "claim",
    [
        Claim("a.py", "return 3", 1, 2),
        Claim("a.py", "", 1, 2),
        Claim("a.py", " \n ", 1, 2),
        Claim("other.py", "return 2", 6, 6),
        Claim("a.py", "def  second", 5, 5),
        Claim("", "return 2", 6, 6),
    ],
)
def test_a_quote_that_does_not_occur_is_dropped(claim: Claim) -> None:
    assert library(TEXT, TEXT).checked([claim], MAX_BYTES) == ([], 1)


def test_a_file_may_be_named_by_handle_or_by_the_end_of_its_name() -> None:
    books = library(TEXT, "x = 5\n")
    for name in ("lib/b.py", "b.py", "./b.py", "h_1"):
        found, _ = books.checked([Claim(name, "x = 5", 1, 1)], MAX_BYTES)
        assert [each["handle"] for each in found] == ["h_1"]
    assert lines_of(library(TEXT).checked([Claim("?", "return 2", 6, 6)], MAX_BYTES)[0]) == [(6, 6)]


def test_line_endings_and_surrounding_blanks_of_a_quote_do_not_matter() -> None:
    books = library(b"one\r\ntwo\r\nthree\r\n")
    for quote in ("one\ntwo", "one\r\ntwo", "\n one\ntwo \n", "one\ntwo\n"):
        found, dropped = books.checked([Claim("a.py", quote, 1, 2)], MAX_BYTES)
        assert (lines_of(found), dropped) == ([(1, 2)], 0), quote
        assert found[0]["quote"] in "one\r\ntwo\r\n"


def test_quotes_are_bounded_like_spans() -> None:
    long = library("\n".join(map(str, range(1_000, 2_000))) + "\n", "é" * 20_000)
    whole = "\n".join(map(str, range(1_000, 2_000)))
    found, _ = long.checked([Claim("a.py", whole, 1, 1_000)], MAX_BYTES)
    assert lines_of(found) == [(1, MAX_LINES)]
    found, _ = long.checked([Claim("lib/b.py", "é" * 20_000, 1, 1)], MAX_BYTES)
    assert len(found[0]["quote"].encode()) == MAX_BYTES
    many = [Claim("a.py", str(number)) for number in range(1_000, 1_100)]
    found, dropped = long.checked(many, 10)
    assert (len(found), dropped) == (2, 98)


def test_the_same_citation_counts_once() -> None:
    claim = Claim("a.py", "return 2", 6, 6)
    found, dropped = library(TEXT).checked([claim, claim], MAX_BYTES)
    assert (len(found), dropped) == (1, 1)


LINE = st.text(st.sampled_from("ab \té🦜\r"), max_size=5)


@given(
    st.lists(LINE, max_size=12).map("\n".join),
    st.text(st.sampled_from("ab \té🦜\r\n"), max_size=6),
    st.none() | st.integers(-5, 20),
    st.none() | st.integers(-(10**20), 10**20),
)
def test_only_verifiable_citations_come_out_of_any_claim(
    text: str, quote: str, first: int | None, last: int | None
) -> None:
    found, dropped = library(text).checked([Claim("a.py", quote, first, last)], MAX_BYTES)
    assert len(found) + dropped == 1
    for each in found:
        lines = text.encode().split(b"\n")
        covered = b"\n".join(lines[each["start_line"] - 1 : each["end_line"]])
        if each["end_line"] < len(lines):
            covered += b"\n"
        assert each["quote"].strip()
        assert each["quote"].encode() in covered
        assert each["sha256"] == hashlib.sha256(covered).hexdigest()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["answer", "citations", "file", "quote", "start_line", "x"]), inner
        )
    ),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_an_answer_of_any_shape_can_be_read(value: Any, has_json: bool) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    found = read_answer(text, json.dumps(value) if has_json else None)
    assert isinstance(found.answer, str)
    library(TEXT).checked(found.citations, MAX_BYTES)


def test_of_very_many_citations_the_first_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []

    def counted(kind: Any) -> AnswerType:
        built.append(kind)
        return answer_type(kind)

    monkeypatch.setattr(citations_module, "answer_type", counted)
    claims = [{"file": "a.py", "quote": "x", "start_line": "?"}, *[1] * 90_000]
    cited = read_answer("", json.dumps({"answer": "a", "citations": claims}))
    assert (cited.answer, len(cited.citations)) == ("a", 90_001)
    assert len(built) == 3, "one for each form, not one for each citation"


@given(st.text("a\n", max_size=60).map(str.encode), st.integers(1, 9))
def test_lines_are_counted_in_blocks(data: bytes, block: int) -> None:
    whole = data.splitlines(keepends=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(citations_module, "_BLOCK", block)
        lines = citations_module._Lines(data)
        starts = [len(b"".join(whole[:number])) for number in range(len(whole))]
        for at in range(len(data)):
            assert lines.number_at(at) == data.count(b"\n", 0, at) + 1
        for number, start in enumerate(starts, 1):
            assert lines.start_of(number) == start
            assert lines.between(number, number) == whole[number - 1]
            assert lines.between(1, number) == b"".join(whole[:number])
        assert lines.start_of(max(2, len(whole) + 1)) is None
        assert lines.end_of(len(whole) + 1) == len(data)


def test_quotes_are_searched_for_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "one\n" * 100 + "two\n"
    claims = [Claim(quote=f"no {number}") for number in range(40)] + [Claim(quote="two")]
    assert len(library(text, names=("a.py",)).checked(claims, 10_000)[0]) == 1
    monkeypatch.setattr(citations_module, "MAX_SEARCHED_BYTES", 20 * len(text))
    found, dropped = library(text, names=("a.py",)).checked(claims, 10_000)
    assert (found, dropped) == ([], 41)
    named = [*claims[:40], Claim(quote="two", start_line=101)]
    assert len(library(text, names=("a.py",)).checked(named, 10_000)[0]) == 1
