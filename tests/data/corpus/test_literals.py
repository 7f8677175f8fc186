"""Patterns searched through literals and across lines find what a search line by line finds."""

import json
import os
import re
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlm.data.corpus import grep_worker
from rlm.data.corpus.literals import facts_of
from rlm.data.corpus.reading import open_source

ATOMS = [
    "a",
    "ks",
    "b",
    "foo",
    "é",
    ".",
    r"\w",
    r"\s",
    "[^a]",
    "[ab]",
    r"\d",
    " ",
    r"\.",
    "x?",
    r"\b",
    r"\B",
    "i",
    "[i-k]",
    "[^i]",
    r"[^\wa]",
    r"\W",
]
patterns = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda each: f"({each})"),
        inner.map(lambda each: f"^{each}"),
        inner.map(lambda each: f"{each}$"),
        inner.map(lambda each: f"(?={each})"),
        inner.map(lambda each: f"(?!{each})a"),
        st.tuples(st.sampled_from(["i", "s", "m", "x", "a", "-i", "-s", "si-m"]), inner).map(
            lambda pair: f"(?{pair[0]}:{pair[1]})"
        ),
    ),
    max_leaves=6,
)
patterns = st.tuples(
    st.sampled_from(["", "", "(?i)", "(?s)", "(?m)", "(?x)", "(?a)", "(?ims)", "(?ia)"]), patterns
).map("".join)
texts = st.text(alphabet="aAb fFooOé.1xKks\N{KELVIN SIGN}ſiIİı\n\r", max_size=120)


def found(tmp: Path, data: bytes, pattern: str, *, ignore_case: bool, span: int) -> list[int]:
    matches = searched(tmp, data, pattern, ignore_case=ignore_case, span=span, is_lines=False)
    return [place for place, _ in matches]


def searched(
    tmp: Path, data: bytes, pattern: str, *, ignore_case: bool, span: int, is_lines: bool
) -> list[tuple[int, int]]:
    """The places of matches, and their lines in records."""
    path = (tmp / "text").resolve()
    path.write_bytes(data)
    status = path.stat()
    spans = [
        [
            *(bytes(path).hex(), status.st_size, status.st_mtime_ns),
            *(start, min(start + span, len(data)), is_lines),
        ]
        for start in range(0, len(data), span)
    ]
    answer = grep_worker.search_spans(spans, pattern, ignore_case, 10_000, [None, None])
    assert answer["changed"] == []
    return [(place, line) for _, place, line, _ in answer["matches"]]


def expected(data: bytes, pattern: str, *, ignore_case: bool) -> list[int]:
    places, place = [], 0
    compiled = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    lines = data.split(b"\n")
    if lines[-1] == b"":  # no line after the last line end
        lines.pop()
    for line in lines:
        if compiled.search(line.decode("utf-8", "replace")):
            places.append(place)
        place += len(line) + 1
    return places


@given(patterns, texts, st.booleans(), st.integers(1, 50), st.integers(1, 50), st.integers(1, 9))
@example("^(?:a)*$", "1\n", False, 50, 50, 9)
@example("(?i)FOO", "foo 42\n", False, 50, 50, 9)
@example(r"(?i)foo \d+", "Foo 42\n", False, 50, 50, 9)
@example("(?i:FOO)b", "foob\n", False, 50, 50, 9)
@example("(?x) f o o", "foo\n", False, 50, 50, 9)
@settings(deadline=None)
def test_every_search_method_finds_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory,
    pattern: str,
    text: str,
    ignore: bool,
    span: int,
    block: int,
    step: int,
) -> None:
    data = text.encode()
    tmp = tmp_path_factory.mktemp("grep")
    with patch.multiple(grep_worker, BLOCK_BYTES=block, _STEP_BYTES=step):
        places = found(tmp, data, pattern, ignore_case=ignore, span=span)
    assert places == expected(data, pattern, ignore_case=ignore)


def test_a_file_that_shrinks_during_the_search_counts_as_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = (tmp_path / "text").resolve()
    path.write_bytes(b"one needle\n" * 200_000)
    status = path.stat()

    def opened_and_cut(*given: Any) -> Any:
        file = open_source(*given)
        os.truncate(path, 1 << 20)
        return file

    monkeypatch.setattr(grep_worker, "open_source", opened_and_cut)
    span = [bytes(path).hex(), status.st_size, status.st_mtime_ns, 0, status.st_size, False]
    answer = grep_worker.search_spans([span], "needle", False, 1_000_000, [None, None])
    assert answer["changed"] == [0]


@given(patterns, st.lists(texts, max_size=6), st.booleans(), st.integers(20, 200))
@example("i", ["İ"], True, 20)
@settings(deadline=None)
def test_records_are_found_by_the_lines_of_their_text(
    tmp_path_factory: pytest.TempPathFactory, pattern: str, rows: list[str], ignore: bool, span: int
) -> None:
    lines = [json.dumps({"text": row}, ensure_ascii=ignore).encode() + b"\n" for row in rows]
    compiled = re.compile(pattern, re.IGNORECASE if ignore else 0)
    wanted = [
        (place, number)
        for place, row in zip(accumulate(map(len, lines), initial=0), rows, strict=False)
        for number, line in enumerate(_lines(row), 1)
        if compiled.search(line)
    ]
    tmp, data = tmp_path_factory.mktemp("grep"), b"".join(lines)
    options = {"ignore_case": ignore, "span": span}
    assert searched(tmp, data, pattern, **options, is_lines=True) == wanted  # type: ignore[arg-type]


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


@given(st.binary(max_size=80), st.sampled_from(["a", "a.", "[^b]$", r"\w+", "é"]))
@settings(deadline=None)
def test_invalid_utf8_is_searched_too(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, pattern: str
) -> None:
    tmp = tmp_path_factory.mktemp("grep")
    assert found(tmp, data, pattern, ignore_case=False, span=30) == expected(
        data, pattern, ignore_case=False
    )


@pytest.mark.parametrize("pattern", ["é.", "b.", '"', "[^x]é"])
def test_records_with_invalid_utf8_are_found(tmp_path: Path, pattern: str) -> None:
    rows = [
        b'{"text": "b\xff"}',
        b'{"text": "\xff\xc3\xa9\xff"}',
        b'{"text": "\\""}',
        b'{"text": "b"}',
    ]
    compiled = re.compile(pattern)
    wanted = [
        (sum(len(each) + 1 for each in rows[:number]), 1)
        for number, text in enumerate(("b\ufffd", "\ufffdé\ufffd", '"', "b"))
        if compiled.search(text)
    ]
    assert wanted
    data = b"\n".join(rows)
    found = searched(tmp_path, data, pattern, ignore_case=False, span=1_000, is_lines=True)
    assert found == wanted


@pytest.mark.parametrize(
    ("pattern", "literal", "spans_lines"),
    [
        ("needle", "needle", True),
        (r"needle\d+ in (hay|straw)", "needle", True),
        ("(?:abc)+x?", "abc", True),
        ("(?i)needle", "needle", True),
        ("a|b", "", True),
        ("(needle)?", "", True),
        ("needle(?=x)", "needle", False),
        (r"\Aneedle", "needle", False),
        ("nee\ndle", "", True),
    ],
)
def test_facts_about_a_pattern(pattern: str, literal: str, spans_lines: bool) -> None:
    assert facts_of(pattern) == (literal, "(?i)" in pattern, spans_lines)


def test_a_very_long_line_is_searched_around_the_literal(tmp_path: Path) -> None:
    data = b"x" * (3 << 20) + b"needle" + b"y" * (3 << 20) + b"\nneedle\n"
    places = found(tmp_path, data, "needle", ignore_case=False, span=len(data))
    assert len(places) == 2
    assert places[1] == len(data) - 7
