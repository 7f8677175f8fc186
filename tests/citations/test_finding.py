"""Quotes are found in any text, however it is split, and only where they are."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.citations import Citation, finding, footnotes, quotes_in
from rlm.citations.citation import MAX_TEXT_CHARS
from rlm.citations.finding import Source, find_quotes, find_span

chars = st.characters() | st.sampled_from(
    "ab \n\r\t.*+?()[]{}\\^$|\u00a0\u2028\ud800\udfff’'—-😀\x85\x1c"
)
anything = st.text(chars, max_size=120)
few = st.text(st.sampled_from("ab \n"), max_size=60)


def source_of(*texts: tuple[str | None, str], piece: int = 7) -> Source:
    def texts_in_pieces() -> Iterator[tuple[str | None, Iterator[str]]]:
        for name, text in texts:
            yield name, (text[at : at + piece] for at in range(0, len(text), piece))

    return texts_in_pieces


def one(text: str, quote: str, piece: int = 7) -> Citation | None:
    return find_quotes(source_of((None, text), piece=piece), [quote]).citations[0]


def lines_of(text: str, start: int, end: int) -> tuple[int, int]:
    return 1 + text.count("\n", 0, start), 1 + text.count("\n", 0, end - 1)


@given(anything, st.data(), st.integers(1, 50))
def test_offsets_give_exactly_that_text(text: str, data: Any, piece: int) -> None:
    start = data.draw(st.integers(-3, len(text) + 3))
    end = data.draw(st.integers(-3, len(text) + 3))
    source = source_of((None, text), piece=piece)
    if not 0 <= start < end <= len(text):
        with pytest.raises(LookupError):
            find_span(source, start, end, None)
        return
    found = find_span(source, start, end, None)
    assert (found.text, found.start, found.end) == (text[start:end], start, end)
    assert (found.start_line, found.end_line) == lines_of(text, start, end)


@given(anything | few, st.data(), st.integers(1, 50))
def test_what_is_in_the_text_is_found_at_its_first_place(text: str, data: Any, piece: int) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    quote = text[start:end]
    found = one(text, quote, piece)
    if not quote.strip():
        assert found is None
        return
    assert found is not None
    assert (found.start, found.text) == (text.find(quote), quote)
    assert found.places == text.count(quote)
    assert (found.start_line, found.end_line) == lines_of(text, found.start, found.end)


@given(anything | few, anything | few, st.integers(1, 50))
def test_whatever_is_found_is_verbatim(text: str, quote: str, piece: int) -> None:
    found = one(text, quote, piece)
    if found is None:
        assert not quote.strip() or quote not in text
        return
    assert found.text == text[found.start : found.end]
    assert (
        finding._loose(found.text) == finding._loose(quote).rstrip(finding._PUNCTUATION)
        or found.text == quote
    )
    assert (found.start_line, found.end_line) == lines_of(text, found.start, found.end)


@given(
    st.lists(st.text(st.sampled_from("ab.*(é"), min_size=1, max_size=5), min_size=1, max_size=8),
    st.data(),
)
def test_other_white_space_is_found_too(words: list[str], data: Any) -> None:
    spaces = st.text(st.sampled_from(" \n\r\t\u00a0\u2028"), min_size=1, max_size=4)
    text = "before " + "".join(word + data.draw(spaces) for word in words) + "after"
    quote = "".join(word + data.draw(spaces) for word in words)
    found = one(text, quote, data.draw(st.integers(1, 30)))
    if not finding._loose(quote).rstrip(finding._PUNCTUATION):
        return
    assert found is not None
    assert found.text == text[found.start : found.end]
    same = [finding._loose(each).rstrip(finding._PUNCTUATION) for each in (found.text, quote)]
    assert same[0] == same[1]


@given(st.text())
def test_words_are_what_split_gives(text: str) -> None:
    assert finding._WORD.findall(text) == text.split()


def test_typography_and_punctuation_do_not_matter() -> None:
    text = "He said:\r\nThe node’s “key”—a secret—is\r\n4711; nothing else."
    found = one(text, 'The node\'s "key"-a secret-is 4711.')
    assert found is not None
    assert found.text == "The node’s “key”—a secret—is\r\n4711"
    again = one(text, 'The node\'s "key"-a secret-is 4711;')
    assert again is not None
    assert again.text == found.text + ";"
    assert (found.start_line, found.end_line) == (2, 3)


def test_exact_places_come_before_similar_ones() -> None:
    found = one("one  two\n---\none two, one two", "one two")
    assert found is not None
    assert (found.start, found.places, found.start_line) == (13, 2, 3)


def test_regex_characters_are_matched_literally() -> None:
    assert one("abc", ".*") is None
    assert one("a(b)*[c]", "(b)*[") is not None


def test_texts_are_selected_by_name_index_or_end_of_name() -> None:
    source = source_of(("a/x.txt", "first"), ("b/y.txt", "second"), ("c/y.txt", "third"))
    assert find_span(source, 0, 2, "b/y.txt").text == "se"
    assert find_span(source, 0, 2, 2).file == "c/y.txt"
    assert find_span(source, 0, 2, "x.txt").file == "a/x.txt"
    for name in ("y.txt", "z", "", 3, -1, "x"):
        with pytest.raises(LookupError, match="no text named"):
            find_span(source, 0, 2, name)
    with pytest.raises(LookupError, match="3 texts; name one"):
        find_span(source, 0, 2, None)


def test_quotes_are_found_in_any_of_the_texts() -> None:
    source = source_of(("a", "nothing"), ("b", "x the answer"), ("c", "the answer"))
    found = find_quotes(source, ["the answer", "no such", "the  answer"]).citations
    first = Citation("b", 2, 12, 1, 1, "the answer", 2)
    assert found == [first, None, first]


def test_long_citations_are_cut_with_an_ellipsis() -> None:
    text = "x" * 5_000
    for found in (one(text, text, 999), find_span(source_of((None, text)), 0, 5_000, None)):
        assert found is not None
        assert (len(found.text), found.cut_chars, found.end) == (MAX_TEXT_CHARS, 3_000, 5_000)
        assert footnotes([found])[0].endswith("x […]”")


def test_the_number_of_places_and_the_work_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    found = one("ab" * 5_000, "ab", 1_000)
    assert found is not None
    assert found.places == finding.MAX_PLACES
    monkeypatch.setattr(finding, "MAX_WORK_CHARS", 1_000)
    searched = find_quotes(source_of((None, "y" * 1_000)), ["nowhere at all", "y"])
    assert searched.unsearched == 1
    assert searched.citations[0] is None


def test_searching_a_hostile_text_takes_linear_time() -> None:
    text, quote = "a " * 2_000_000, "a " * 900 + "b"
    assert one(text, quote, 1 << 17) is None
    assert one(" " * 4_000_000 + "z", "a b", 1 << 17) is None


# -- footnotes ------------------------------------------------------------------------------------


def test_footnotes_name_the_place() -> None:
    cited = [
        Citation("r.txt", 0, 9, 12, 14, "one\n two"),
        Citation(None, 0, 9, 3, 3, "three"),
    ]
    assert footnotes(cited) == ["[1] r.txt:12–14 “one two”", "[2] line 3 “three”"]


# -- quotes in answers ----------------------------------------------------------------------------

LONG = "the launch code is 4711, says the log"


@pytest.mark.parametrize(
    "answer",
    [
        f"It says “{LONG}”.",
        f'It says "{LONG}".',
        f"It says „{LONG}“.",
        f"It says «{LONG}».",
        f"It says:\n> {LONG}\n\nDone.",
        f'> "{LONG}"',
        f"It says “… {LONG} [...]”.",
        f'A "short" one, then "{LONG}" and "tiny".',
    ],
)
def test_quotes_are_found_in_answers(answer: str) -> None:
    assert quotes_in(answer) == [LONG]


def test_adjacent_lines_of_a_block_quote_are_one_quote() -> None:
    assert quotes_in("> first line of it\n> and the second\n\n> another one, which is long") == [
        "first line of it\nand the second",
        "another one, which is long",
    ]


@pytest.mark.parametrize(
    "answer",
    [
        "",
        'a "short" word',
        f'```\nprint("{LONG}")\n```',
        f'an unpaired " mark and {LONG}',
        f'a mark " here\n\nand {LONG} " there',
        f"“{LONG}",
    ],
)
def test_ordinary_text_has_no_quotes(answer: str) -> None:
    assert quotes_in(answer) == []


@given(st.text(st.sampled_from('ab">“”„«»\n.…[]`~ '), max_size=300))
def test_any_answer_has_bounded_quotes(answer: str) -> None:
    for quote in quotes_in(answer):
        assert len(quote) >= 20
        assert not set(quote) - set(answer)


def test_thousands_of_quotation_marks_take_linear_time() -> None:
    for hostile in ("“", '"', ".", "```\n", "„", "> ", "…"):
        assert len(quotes_in(hostile * 300_000)) < 3
