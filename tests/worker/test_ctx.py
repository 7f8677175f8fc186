"""`ctx`: exact offsets on any Unicode."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.worker.ctx import ContextView
from rlm.worker.hits import on_one_line

any_text = st.text(st.characters(exclude_categories=[]) | st.sampled_from("aA\n\r İßﬁ😀\u2028"))


@given(any_text, st.integers(-5, 60), st.integers(-5, 60))
def test_slice_clamps(text: str, start: int, end: int) -> None:
    assert ContextView(text).slice(start, end) == text[max(0, start) : max(0, end)]


@given(any_text, st.text(min_size=1, max_size=3), st.booleans())
def test_offsets_of_matches_point_at_the_text(
    text: str, pattern: str, case_sensitive: bool
) -> None:
    matches = ContextView(text).find(pattern, case_sensitive=case_sensitive, max_matches=5)
    assert len(matches) <= 5
    assert bool(matches) or pattern not in text
    for start, end, matched in matches:
        assert text[start:end] == matched
        assert not case_sensitive or matched == pattern


@given(any_text, st.integers(1, 20), st.data())
def test_chunks_cover_the_text_exactly(text: str, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    chunks = ContextView(text).chunk(size, overlap)
    rebuilt = ""
    for start, end, piece in chunks:
        assert text[start:end] == piece
        assert 0 < len(piece) <= size
        rebuilt = rebuilt[:start] + piece
    assert rebuilt == text


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (-1, 0), (5, 5), (5, -1)])
def test_bad_chunk_sizes_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="chunk needs"):
        ContextView("abc").chunk(size, overlap)


def lines_in(text: str) -> list[str]:
    """The lines of a text: a line feed ends one, and the last need not have it."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


@given(any_text, st.integers(1, 5), st.integers(1, 5))
def test_lines_are_counted_from_one_and_inclusive(text: str, start: int, end: int) -> None:
    assert ContextView(text).lines(start, end) == lines_in(text)[start - 1 : end]


@given(any_text, st.integers(0, 2))
def test_grep_finds_the_lines_that_contain_it(text: str, context_lines: int) -> None:
    lines = lines_in(text)
    found = ContextView(text).grep("a", context_lines, max_matches=10_000)
    expected = []
    for index, line in enumerate(lines):
        if "a" in line:
            first = max(0, index - context_lines)
            around = lines[first : index + context_lines + 1]
            expected.append("\n".join(f"{first + n + 1}: {each}" for n, each in enumerate(around)))
    assert found == expected


def test_grep_accepts_a_regular_expression_or_a_literal() -> None:
    view = ContextView("cost: 12\nsum(\ncost: x")
    assert view.grep(r"cost: \d+") == ["1: cost: 12"]
    assert view.grep("sum(") == ["2: sum("]
    assert view.grep("cost", max_matches=1) == ["1: cost: 12"]


@given(any_text, st.sampled_from(["a", "ab", " ", "é", "a a"]), st.integers(0, 3))
def test_the_fast_word_search_agrees_with_regular_expressions(
    text: str, word: str, max_matches: int
) -> None:
    view = ContextView(text)
    quickly = view.grep(word, max_matches=max_matches)
    by_expression = view.grep(f"(?:{word})", max_matches=max_matches)
    assert (quickly, quickly.total) == (by_expression, by_expression.total)
    assert quickly.total == sum(word in line for line in lines_in(text))


def test_hits_say_how_many_there_are_in_all() -> None:
    view = ContextView("cost 1\ncost 2\nsum 3\ncost 4")
    hits = view.grep("cost", max_matches=2)
    assert (list(hits), hits.total) == (["1: cost 1", "2: cost 2"], 3)
    assert str(hits) == repr(hits) == "2 of 3 hits:\n1: cost 1\n2: cost 2"
    assert str(view.grep("sum")) == "1 hit:\n3: sum 3"
    assert str(view.grep("nothing")) == "0 hits"
    assert str(view.find("cost", max_matches=1)) == "1 of 3 hits:\n(0, 4, 'cost')"


def test_a_long_line_is_cut_only_when_displayed() -> None:
    hits = ContextView("x" * 2_000).grep("x")
    assert len(hits[0]) == len("1: ") + 2_000
    assert len(str(hits)) < 600


def test_pickled_hits_become_a_plain_list() -> None:
    saved = pickle.loads(pickle.dumps(ContextView("a\nb").grep("a|b")))
    assert (type(saved), saved) == (list, ["1: a", "2: b"])


FOLDER = {"a.txt": "refund of 3\nnothing", "b/c.txt": "one\n\nrefund 4\n", "empty.txt": ""}


def test_hits_in_a_folder_name_their_file_and_line() -> None:
    view = ContextView(FOLDER)
    assert view.grep("refund") == ["a.txt:1: refund of 3", "b/c.txt:3: refund 4"]
    assert view.grep("refund|chargeback", max_matches=1).total == 2
    assert view.grep(r"\d$", context_lines=1) == [
        "a.txt:1: refund of 3\na.txt:2: nothing",
        "b/c.txt:2: \nb/c.txt:3: refund 4",
    ]


def test_the_text_of_a_folder_includes_file_names() -> None:
    view = ContextView(FOLDER)
    ((start, end, text),) = view.find("refund of")
    assert (view.slice(start, end), text) == ("refund of", "refund of")
    assert view.slice() == "=== a.txt ===\n{}\n\n=== b/c.txt ===\n{}\n\n=== empty.txt ===\n".format(
        FOLDER["a.txt"], FOLDER["b/c.txt"]
    )
    assert ContextView({"a": 1}).slice() == '{"a": 1}'
    assert ContextView({}).slice() == "{}"


@given(st.dictionaries(any_text, any_text, max_size=3), st.sampled_from(["a", "a|b", "^$"]))
def test_each_text_of_a_dict_is_searched_separately(texts: dict[str, str], pattern: str) -> None:
    alone = [(name, hit) for name in texts for hit in ContextView(texts[name]).grep(pattern)]
    assert ContextView(texts).grep(pattern) == (
        [f"{on_one_line(name)}:{hit}" if name else hit for name, hit in alone]
        if texts
        else ContextView("{}").grep(pattern)
    )


def test_find_with_a_regular_expression() -> None:
    assert ContextView("a1b22").find(r"\d+", regex=True) == [(1, 2, "1"), (3, 5, "22")]
    with pytest.raises(ValueError, match="empty"):
        ContextView("a").find("")


def test_lists_and_dicts_have_a_text_form_and_documents() -> None:
    items = ContextView(["one", 2])
    assert items.slice() == "one\n\n2"
    assert items.documents() == ["one", 2]
    mapping = {"a": "é", "b": [1]}
    pairs = ContextView(mapping)
    assert json.loads(pairs.slice()) == mapping
    assert pairs.documents() == [("a", "é"), ("b", [1])]
    assert ContextView("t").documents() == ["t"]


def test_description_shows_structure_never_values() -> None:
    assert ContextView("secret\nline").describe() == "str of 11 characters, 2 lines"
    assert ContextView(["secret", 1]).describe() == "list of 2 items (int, str)"
    assert ContextView({"key": "secret"}).describe() == "dict with 1 key (key)"
