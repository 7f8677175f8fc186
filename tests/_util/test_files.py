"""Descriptors: reads and writes at offsets, and locks that one open file has at a time."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm._util import files


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | files.BINARY | files.NOFOLLOW, 0o600)


@given(data=st.binary(max_size=200), offset=st.integers(0, 300))
def test_what_is_written_at_an_offset_is_read_there(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, offset: int
) -> None:
    fd = opened(tmp_path_factory.mktemp("files") / "file")
    try:
        assert files.write_at(fd, data, offset) == len(data)
        assert files.read_at(fd, len(data) + 10, offset) == data
    finally:
        os.close(fd)


def test_a_lock_is_held_by_one_open_file_until_it_is_closed(tmp_path: Path) -> None:
    first, second = (opened(tmp_path / "lock") for _ in range(2))
    assert not files.is_locked(second)
    files.lock(first)
    assert files.is_locked(second)
    with pytest.raises(BlockingIOError):
        files.lock(second)
    os.close(first)
    files.lock(second)
    os.close(second)
