"""`Context` reads exactly: everything it returns is where it says, with any Unicode."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_runtime import Context

TEXTS = st.text(max_size=200)
OFFSETS = st.integers(-300, 300)


@given(TEXTS, OFFSETS, OFFSETS)
def test_a_slice_is_clamped_and_never_wraps_around(text: str, start: int, end: int) -> None:
    expected = "".join(text[at] for at in range(len(text)) if start <= at < end)
    assert Context.from_text(text).slice(start, end) == expected


@given(TEXTS, st.text(min_size=1, max_size=3), st.booleans(), st.integers(0, 5))
def test_matches_have_correct_positions(
    text: str, pattern: str, case_sensitive: bool, most: int
) -> None:
    found = Context.from_text(text).find(pattern, max_matches=most, case_sensitive=case_sensitive)
    assert len(found) <= most
    for start, end, match in found:
        assert text[start:end] == match
        assert re.fullmatch(re.escape(pattern), match, 0 if case_sensitive else re.IGNORECASE)
    if case_sensitive:
        assert len(found) == min(most, text.count(pattern))


def test_find_accepts_a_regular_expression() -> None:
    context = Context.from_text("İstanbul 34, Ankara 06, Izmir 35")
    assert context.find(r"\d+", regex=True) == [(9, 11, "34"), (20, 22, "06"), (30, 32, "35")]
    assert context.find(r"\d+", regex=True, max_matches=1) == [(9, 11, "34")]
    assert context.find("IZMIR", case_sensitive=False) == [(24, 29, "Izmir")]
    assert context.find("") == []


@given(TEXTS, st.integers(1, 50), st.data())
def test_chunks_cover_the_text_in_order(text: str, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    chunks = Context.from_text(text).chunk(size, overlap)
    assert all(text[start:end] == piece and piece for start, end, piece in chunks)
    fresh = (piece[overlap if number else 0 :] for number, (_, _, piece) in enumerate(chunks))
    assert "".join(fresh) == text
    assert all(len(piece) == size for _, _, piece in chunks[:-1])


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (-1, 0), (4, 4), (4, -1)])
def test_invalid_chunk_sizes_are_value_errors(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="chunk needs"):
        Context.from_text("some text").chunk(size, overlap)


@given(st.lists(TEXTS, min_size=1, max_size=12), st.integers(1, 5))
def test_documents_stay_whole_and_in_order(documents: list[str], size: int) -> None:
    context = Context.from_documents(documents, separator="|")
    assert context.text == "|".join(documents)
    assert context.num_documents() == len(documents)
    assert [context.get_document(at) for at in range(len(documents))] == documents
    groups = context.chunk_documents(size)
    assert [document for _, _, group in groups for document in group] == documents
    assert all(documents[start:end] == group for start, end, group in groups)
    assert all(0 < len(group) <= size for _, _, group in groups)


def test_metadata_describes_a_context() -> None:
    context = Context.from_documents(["one", "three"])
    assert context.metadata() == {
        "context_type": "document_list",
        "total_length": context.len_chars(),
        "num_documents": 2,
        "document_lengths": [3, 5],
    }
    assert context.len_chars() == len("one" + "\n\n---\n\n" + "three")
    assert context.get_document(2) is context.get_document(-1) is None
    assert (
        Context.from_text("one").num_documents() == Context.from_documents([]).num_documents() == 1
    )
    assert Context.from_text("one").metadata()["context_type"] == "string"
    with pytest.raises(ValueError, match="docs_per_chunk"):
        context.chunk_documents(0)
