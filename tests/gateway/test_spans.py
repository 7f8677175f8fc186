"""Spans are bounded and exact about lines, and together make up the file."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm.gateway import files
from rlm.gateway.errors import Refused
from rlm.gateway.files import MAX_BYTES, MAX_LINES, LineIndex, read_span

CONTENT = st.one_of(
    st.lists(st.sampled_from([b"a\n", b"\n", b"\r\n", "é🦜\n".encode(), b"x" * 90, b"\xff\n"])).map(
        b"".join
    ),
    st.text(st.characters(exclude_characters="\0", codec="utf-8")).map(str.encode),
)


@contextmanager
def opened(path: Path, data: bytes) -> Generator[tuple[int, LineIndex], None, None]:
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd, LineIndex(len(data))
    finally:
        os.close(fd)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


@given(CONTENT, st.integers(1, 12), st.integers(1, 60))
@settings(deadline=None)
def test_consecutive_spans_make_up_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, count: int, most: int
) -> None:
    path = tmp_path_factory.mktemp("span") / "f"
    with pytest.MonkeyPatch.context() as patch, opened(path, data) as (fd, index):
        patch.setattr(files, "BLOCK_BYTES", 16)
        whole, offset = b"", 0
        while True:
            span = read_span(fd, index, offset=offset, lines=count, max_bytes=most)
            piece = data[span.start_offset : span.end_offset]
            assert span.start_offset == offset
            assert span.text == piece.decode("utf-8", "replace")
            assert span.lossy == ("\ufffd" in span.text and "\ufffd".encode() not in piece)
            assert len(piece) <= max(4, most)
            assert piece.count(b"\n") <= count
            assert span.start_line == data[:offset].count(b"\n") + 1
            assert span.end_line == span.start_line + piece[:-1].count(b"\n")
            whole += piece
            if span.next_offset is None:
                break
            assert span.next_offset > offset
            offset = span.next_offset
        assert whole == data


@given(CONTENT, st.integers(-2, 40))
@settings(deadline=None)
def test_a_line_is_found_by_its_number(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, line: int
) -> None:
    path = tmp_path_factory.mktemp("line") / "f"
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    with pytest.MonkeyPatch.context() as patch, opened(path, data) as (fd, index):
        patch.setattr(files, "BLOCK_BYTES", 16)
        assert index.count(fd) == len(expected)
        offset = index.offset_of(fd, line)
        if 1 <= line <= len(expected):
            assert offset == sum(len(each) + 1 for each in expected[: line - 1])
            assert index.line_at(fd, offset) == line
        else:
            assert offset is None


def test_limits_hold_whatever_is_requested(file: Path) -> None:
    with opened(file, b"ab\n" * 10_000) as (fd, index):
        span = read_span(fd, index, start_line=5, lines=10**9, max_bytes=10**9)
        assert (span.start_line, span.end_line) == (5, 204)
        assert span.text.count("\n") == MAX_LINES
    with opened(file, b"x" * 50_000) as (fd, index):
        span = read_span(fd, index, lines=10**9, max_bytes=10**9)
        assert len(span.text) == MAX_BYTES
        assert (span.start_line, span.end_line, span.next_offset) == (1, 1, MAX_BYTES)


def test_lines_that_do_not_fit_are_left_to_the_next_span(file: Path) -> None:
    data = b"short\n" + b"x" * 8_190 + b"\nend\n"
    with opened(file, data) as (fd, index):
        first = read_span(fd, index)
        assert (first.text, first.next_offset) == ("short\n", 6)
        second = read_span(fd, index, offset=first.next_offset)
        assert (second.start_line, second.end_line, len(second.text)) == (2, 2, 8_191)
        third = read_span(fd, index, offset=second.next_offset)
        assert (third.text, third.start_line, third.next_offset) == ("end\n", 3, None)


def test_a_position_beyond_the_file_is_reported_with_its_size(file: Path) -> None:
    with opened(file, b"a\nb\n") as (fd, index):
        with pytest.raises(Refused, match="no line 3: the file has 2 lines"):
            read_span(fd, index, start_line=3)
        with pytest.raises(Refused, match="nothing at 4: the file has 4 bytes"):
            read_span(fd, index, offset=4)
        with pytest.raises(Refused, match="nothing at -1"):
            read_span(fd, index, offset=-1)
    with opened(file, b"") as (fd, index):
        assert read_span(fd, index).text == ""
    with opened(file, b"a\0b") as (fd, index), pytest.raises(Refused, match="not text"):
        read_span(fd, index)


def test_a_file_that_shrank_ends_earlier(file: Path) -> None:
    with opened(file, b"line\n" * 100) as (fd, index):
        file.write_bytes(b"line\n" * 2)
        span = read_span(fd, index)
        assert span.text == "line\nline\n"
