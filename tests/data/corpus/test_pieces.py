"""Files are cut into pieces without a gap, and records are read whatever a line holds."""

import io
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlm.data.corpus import pieces
from rlm.data.corpus.pieces import record_pieces, records_of, text_pieces
from rlm.data.corpus.reading import whole_characters
from rlm.data.corpus.records import Fields, Record, read_record


@given(st.text(max_size=200), st.integers(8, 40), st.integers(0, 3))
def test_pieces_make_up_the_text(text: str, size: int, resumed: int) -> None:
    data = text.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", size)
        found = list(text_pieces(io.BytesIO(data), 0, 0, len(data)))
        assert "".join(piece.text for piece in found) == text
        for piece in found:
            assert piece.line == data[: piece.start].count(b"\n") + 1
            assert piece.end - piece.start <= size
        if resumed < len(found):
            rest = found[resumed]
            again = list(text_pieces(io.BytesIO(data), rest.start, rest.line - 1, len(data)))
            assert again == found[resumed:]


@given(st.binary(max_size=120), st.integers(8, 40))
def test_pieces_cover_every_byte(data: bytes, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", size)
        at = 0
        for piece in text_pieces(io.BytesIO(data), 0, 0, len(data)):
            assert piece.start == at
            assert piece.end > at
            at = piece.end
        assert at == len(data)


@given(st.text(max_size=200), st.integers(1, 40))
def test_pieces_of_a_record_make_up_its_text(text: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", size)
        found = list(record_pieces(text))
    assert "".join(piece for _, piece in found) == text
    seen = ""
    for line, piece in found:
        assert line == seen.count("\n") + 1
        seen += piece


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["text", "id", "title", "year", "a.b", "x\0"]), values))
@example({"text": "written by Python", "score": float("nan"), "id": float("inf")})
@example({"text": "\ud800"})
def test_a_record_is_read_or_skipped(value: dict[str, Any]) -> None:
    record = read_record(json.dumps(value).encode(), Fields())
    if isinstance(value.get("text"), str):
        assert record is not None
        assert "x\0" not in record.fields
        record.text.encode()
        json.dumps(record.fields, allow_nan=False)
    else:
        assert record is None


@given(st.binary(max_size=60))
def test_any_line_is_a_record_or_none(line: bytes) -> None:
    found = read_record(line, Fields())
    assert found is None or isinstance(found, Record)


def test_a_deeply_nested_record_is_skipped() -> None:
    line = b'{"text":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert read_record(line, Fields()) is None


def test_lines_are_numbered_and_long_ones_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MAX_LINE_BYTES", 30)
    data = b'{"text":"one"}\n\n' + b"x" * 100 + b'\n{"text":"two"}'
    found = list(records_of(io.BytesIO(data), 0, 0, len(data), Fields()))
    kinds = [each.record if isinstance(each.record, str) else each.record.text for each in found]
    assert kinds == ["one", "line over 64 MiB", "two"]
    assert [each.number for each in found] == [1, 3, 4]
    assert data[found[2].start : found[2].end] == b'{"text":"two"}'


@given(st.text(max_size=30), st.integers(0, 40), st.integers(0, 40))
def test_parts_of_a_text_end_at_whole_characters(text: str, start: int, size: int) -> None:
    data = text.encode()
    part = data[start : start + size]
    at_end = start + len(part) >= len(data)
    first, last = whole_characters(part, is_first=start == 0, is_last=at_end)
    whole = part[first:last]
    assert whole.decode() in text
    assert len(part) - len(whole) <= 6
