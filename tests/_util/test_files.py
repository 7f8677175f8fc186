"""Descriptors: reads and writes at offsets, and locks held by one open file at a time."""

import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm._util import files


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | files.BINARY | files.NOFOLLOW, 0o600)


@given(data=st.binary(max_size=200), offset=st.integers(0, 300))
def test_data_written_at_an_offset_is_read_there(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, offset: int
) -> None:
    fd = opened(tmp_path_factory.mktemp("files") / "file")
    try:
        assert files.write_at(fd, data, offset) == len(data)
        assert files.read_at(fd, len(data) + 10, offset) == data
    finally:
        os.close(fd)


def test_a_lock_is_held_by_one_open_file_until_closed(tmp_path: Path) -> None:
    first, second = (opened(tmp_path / "lock") for _ in range(2))
    assert not files.is_locked(second)
    files.lock(first)
    assert files.is_locked(second)
    with pytest.raises(BlockingIOError):
        files.lock(second)
    os.close(first)
    files.lock(second)
    os.close(second)


def facts(mode: int, user: int, group: int = 0) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 1, 1, 1, user, group, 0, 0, 0, 0))


@pytest.mark.skipif(sys.platform == "win32", reason="files have no modes there")
def test_writers_of_a_file_are_found_by_owner_and_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    import grp
    import pwd

    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="ada"))
    groups = {
        1_000: SimpleNamespace(gr_name="ada", gr_mem=[]),
        1_001: SimpleNamespace(gr_name="ada", gr_mem=["eve"]),
        1_002: SimpleNamespace(gr_name="staff", gr_mem=[]),
    }
    monkeypatch.setattr(grp, "getgrgid", groups.__getitem__)
    for mode, user, group in ((0o600, 1_000, 0), (0o644, 0, 0), (0o664, 1_000, 1_000)):
        assert files.writers_problem(facts(mode, user, group)) is None
    assert files.writers_problem(facts(0o600, 1_001)) == "it belongs to another user"
    for mode, group in ((0o646, 1_000), (0o664, 1_001), (0o664, 1_002), (0o664, 9_999)):
        assert "other users can write" in str(files.writers_problem(facts(mode, 1_000, group)))
