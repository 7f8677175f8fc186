"""The coverage map, compared with runs whose read spans are known exactly."""

import json
import random
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.viewer import matching
from rlm.viewer.coverage import (
    SHORTEST,
    Coverage,
    Reader,
    Reading,
    covered,
    disjoint,
    length_within,
    unescaped,
    union,
)
from rlm.viewer.matching import COARSE, MINIMUM, Blocks, common_after, common_before

ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz \n",
    "äöüéñß€ \r\n",
    "文字化けテスト漢字 \n",
    "🙂🙃🚀é\u200b a\t",
)


def reader(number: int) -> Reader:
    return Reader("run", number, "printed")


def read(text: str, *printed: str) -> Coverage:
    readings = [Reading(reader(number), each) for number, each in enumerate(printed)]
    return covered(text, [(0, len(text))], readings)


def spans_of(coverage: Coverage) -> list[tuple[int, int]]:
    return union((start, end) for start, end, _ in coverage.spans)


def oracle(text: str, printed: list[str]) -> list[tuple[int, int]]:
    """Return every position inside a printed part of at least the minimal length."""
    parts = {each[at : at + MINIMUM] for each in printed for at in range(len(each) - MINIMUM + 1)}
    long = [
        (at, at + MINIMUM)
        for at in range(len(text) - MINIMUM + 1)
        if text[at : at + MINIMUM] in parts
    ]
    return union([*long, *short_lines(text, printed)])


def short_lines(text: str, printed: list[str]) -> list[tuple[int, int]]:
    """Return unique lines that are too short for the other rules, and were printed completely."""
    lines = [each.strip() for each in text.split("\n")]
    chosen = [each for each in lines if SHORTEST <= len(each) < MINIMUM and lines.count(each) == 1]
    by_itself = [re.compile(rf"(?<!\w){re.escape(each)}(?![^\W_])") for each in chosen]
    starts = [re.search(rf"^\s*?({re.escape(each)})\s*?$", text, re.MULTILINE) for each in chosen]
    return [
        start.span(1)
        for start, pattern in zip(starts, by_itself, strict=True)
        if start is not None and any(map(pattern.search, printed))
    ]


def test_short_lines_count_as_read_if_they_are_distinctive() -> None:
    rows = [f"row {number}: yes" for number in range(100)]
    text = "\n".join([*rows, "a, b, c and d", "a, b, c and d", "tiny"])
    found = read(text, "Is this right? row 7: yes", "['row 12: yes', 'tiny', 'a, b, c and d']")
    first, second = text.index(rows[7]), text.index(rows[12])
    assert spans_of(found) == [(first, first + 10), (second, second + 11)]
    assert found.exact
    assert read(text, "row 7: yesterday", "arrow 7: yes").spans == []


def unique_text(seed: int, chars: int, alphabet: str) -> str:
    """Return a random text in which no part of the minimal length occurs twice."""
    rnd = random.Random(seed)
    text = "".join(rnd.choices(alphabet, k=chars))
    parts = [text[at : at + MINIMUM] for at in range(max(0, chars - MINIMUM + 1))]
    assert len(parts) == len(set(parts))
    return text


@st.composite
def runs(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A context, and texts that hold slices of it between other words."""
    chars = draw(st.integers(0, 3_000))
    text = unique_text(draw(st.integers(0, 10**6)), chars, draw(st.sampled_from(ALPHABETS)))
    printed = []
    for _ in range(draw(st.integers(0, 6))):
        pieces = []
        for _ in range(draw(st.integers(1, 3))):
            start = draw(st.integers(0, chars))
            end = draw(
                st.integers(start, min(chars, start + draw(st.sampled_from([30, 300, 3000]))))
            )
            pieces += [
                draw(st.sampled_from(["", "Summarize:\n", "a", "---", " "])),
                text[start:end],
            ]
        printed.append("".join(pieces))
    return text, printed


@given(runs())
def test_spans_are_exactly_the_text_that_was_read(run: tuple[str, list[str]]) -> None:
    text, printed = run
    coverage = read(text, *printed)
    expected = oracle(text, printed)
    assert spans_of(coverage) == expected
    seen = sum(end - start for start, end in expected)
    assert coverage.unread_percent == pytest.approx(100 - 100 * seen / len(text) if text else 0.0)


@given(runs(), st.booleans())
def test_escaped_text_counts_like_plain_text(run: tuple[str, list[str]], as_json: bool) -> None:
    text, printed = run
    escaped = [json.dumps(each) if as_json else repr(each) for each in printed]
    coverage = read(text, *escaped)
    missing = length_within(oracle(text, printed), [(0, len(text))]) - length_within(
        spans_of(coverage), oracle(text, printed)
    )
    assert missing == 0


@given(st.text(max_size=200), st.booleans())
def test_escapes_are_resolved(text: str, as_json: bool) -> None:
    written = json.dumps(text) if as_json else repr(text)
    plain = unescaped(written)
    assert (written if plain is None else plain)[1:-1] == text


@given(st.text("ab", max_size=300), st.text("ab", max_size=300), st.integers(0, 300))
def test_the_length_of_common_parts_is_exact(one: str, other: str, at: int) -> None:
    mine, yours = min(at, len(one)), min(at // 2, len(other))
    after = 0
    while one[mine + after : mine + after + 1] == other[yours + after : yours + after + 1] != "":
        after += 1
    before = 0
    while before < min(mine, yours) and one[mine - before - 1] == other[yours - before - 1]:
        before += 1
    assert common_after(one, mine, other, yours) == after
    assert common_before(one, mine, other, yours) == before


@given(st.text("ab\n", max_size=400), st.lists(st.text("ab\n", max_size=120), max_size=5))
def test_repetitive_text_never_counts_as_read_unless_it_was_printed(
    text: str, printed: list[str]
) -> None:
    """With so few letters, nearly everything occurs several times, so positions are ambiguous."""
    coverage = read(text, *printed)
    everything = oracle(text, printed)
    assert length_within(spans_of(coverage), everything) == sum(
        end - start for start, end in spans_of(coverage)
    )
    if everything:
        assert coverage.spans
    if coverage.exact:
        assert spans_of(coverage) == everything


def test_a_slice_passed_as_a_whole_is_found_as_a_whole() -> None:
    text = unique_text(1, 200_000, ALPHABETS[0])
    chunks = [text[at : at + 5_000] for at in range(0, len(text), 5_000)]
    coverage = read(
        text, *(f"Question {n}?\n\n{chunk}\n\nAnswer:" for n, chunk in enumerate(chunks))
    )
    assert coverage.unread_percent == 0.0
    assert coverage.exact
    assert spans_of(coverage) == [(0, len(text))]
    owners = {who[0] for _, _, who in coverage.spans if len(who) == 1}
    assert owners == set(range(len(chunks)))


def test_a_short_part_next_to_a_long_one_is_found() -> None:
    """By chance the long part continues like the short one, leaving less than the minimum."""
    text = unique_text(7, 3_000, ALPHABETS[0])
    start = text.index(text[400], 1_000)
    end = start + MINIMUM
    assert spans_of(read(text, text[:400] + text[start:end])) == [(0, 401), (start, end)]
    start = text.index(text[1_999], 100, 1_000) - MINIMUM + 1
    end = start + MINIMUM
    printed = text[start:end] + text[2_000:2_500]
    assert spans_of(read(text, printed)) == [(start, end), (1_999, 2_500)]


def test_parts_shorter_than_the_minimum_do_not_count() -> None:
    text = unique_text(2, 1_000, ALPHABETS[0])
    assert read(text, text[100 : 100 + MINIMUM - 1]).spans == []
    assert spans_of(read(text, text[100 : 100 + MINIMUM])) == [(100, 100 + MINIMUM)]


def test_repeated_equal_lines_are_assigned_in_order() -> None:
    line = "the same line of thirty chars\n"
    text = line * 1_000
    coverage = read(text, line, line, line)
    assert not coverage.exact
    assert spans_of(coverage) == [(0, 3 * len(line))]


def test_chunks_of_a_repetitive_context_cover_it_completely() -> None:
    line = "the same line of thirty chars\n"
    text = line * 20_000
    size = 300 * len(line)
    coverage = read(text, *(text[at : at + size] for at in range(0, len(text), size)))
    assert not coverage.exact
    assert coverage.unread_percent == 0.0


def test_printing_one_of_many_equal_lines_covers_one_line() -> None:
    line = "2026-11-15 INFO nothing to report\n"
    text = line * 100_000
    coverage = read(text, f"found: {line}")
    assert not coverage.exact
    assert coverage.unread_percent == pytest.approx(100 - 100 / 100_000)


def test_a_unique_part_after_a_repeated_header_is_located_correctly() -> None:
    header = "=" * 40 + "\n"
    bodies = [unique_text(n, 300, ALPHABETS[0]) for n in range(40)]
    text = "".join(header + body for body in bodies)
    at = text.index(bodies[20]) - len(header)
    printed = text[at : at + len(header) + 200]
    assert spans_of(read(text, printed)) == [(at, at + len(printed))]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 5)), max_size=20),
    st.integers(1, 10),
)
def test_disjoint_spans_name_all_their_readers(
    parts: list[tuple[int, int, int]], most: int
) -> None:
    read_parts = [(start, start + length, who) for start, length, who in parts if length]
    spans = disjoint(read_parts, 1_000)
    assert all(one[1] <= two[0] for one, two in pairwise(spans))
    for place in range(90):
        expected = sorted({who for start, end, who in read_parts if start <= place < end})
        got = [who for start, end, who in spans if start <= place < end]
        assert got == ([expected] if expected else [])
    few = disjoint(read_parts, most)
    assert len(few) <= most
    inside = union((start, end) for start, end, _ in few)
    everything = union((start, end) for start, end, _ in read_parts)
    assert length_within(inside, everything) == sum(end - start for start, end in inside)


def test_parts_are_found_without_examining_every_character(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If lines distinguish the parts, the slow index of every piece is never built."""
    text = unique_text(3, 100_000, ALPHABETS[0])
    lengths: list[int] = []
    made = Blocks.__init__

    def counted(self: Blocks, text: str, length: int, *rest: Any) -> None:
        lengths.append(length)
        made(self, text, length, *rest)

    monkeypatch.setattr(Blocks, "__init__", counted)
    chunks = [text[at : at + 2_000] for at in range(0, len(text), 2_000)]
    assert read(text, *chunks).unread_percent == 0.0
    assert COARSE[0] not in lengths


@given(st.sampled_from(ALPHABETS), st.integers(1, 7), st.integers(0, 10**6))
def test_limiting_the_number_of_marks_does_not_change_the_result(
    alphabet: str, every: int, seed: int
) -> None:
    text = unique_text(seed, 4_000, alphabet)
    printed = [f"{number}: {text[at : at + 700]}" for number, at in enumerate(range(0, 4_000, 650))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "MAX_MARKS", max(1, text.count("\n") // every))
        assert spans_of(read(text, *printed)) == oracle(text, printed)


def test_beyond_a_limit_the_boundaries_of_parts_are_estimated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = unique_text(5, 20_000, ALPHABETS[0])
    chunks = [f"{at}: {text[at : at + 1_000]}" for at in range(0, len(text), 1_000)]
    assert read(text, *chunks).exact
    monkeypatch.setattr(matching, "MAX_SEAM_CHARS", 100)
    found = read(text, *chunks)
    assert found.unread_percent == 0.0
    assert not found.exact
