"""The tail: what stands in it survives the death of its process, and nothing else comes back."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.messages import Reply, ReplyKey, Usage
from rlm.records.journal import records
from rlm.records.journal.records import HEAD_BYTES, ROOM_BYTES, Tail, end_of, packed, tail_of


def record(text: str) -> bytes:
    key = ReplyKey("root", "digest", 0, "llm", 1)
    return packed(key, Reply(text=text, usage=Usage(1, 1), model="m"))


@pytest.fixture(params=["mapped", "written"])
def opened(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tail]:
    kind = "ext4" if request.param == "mapped" else "a kind that nobody knows"
    monkeypatch.setattr(records, "_file_system", lambda device: kind)
    made = Tail(tmp_path / "run.sqlite")
    made.open()
    assert (made._map is not None) == (request.param == "mapped")
    yield made
    made.close()


def left_in(one: Tail) -> bytes:
    """What another process would find."""
    return Tail.records(one)


def test_added_records_are_found(opened: Tail) -> None:
    records = [record("a"), record("b" * 500), record("")]
    assert all(opened.add(each) for each in records)
    assert left_in(opened) == b"".join(records)


def test_cleared_records_do_not_come_back(opened: Tail) -> None:
    for _ in range(20):
        opened.add(record("an older reply, and a long one"))
    opened.clear()
    assert left_in(opened) == b""
    opened.add(record("new"))
    assert left_in(opened) == record("new")


def test_a_record_without_its_header_is_ignored(opened: Tail) -> None:
    opened.add(record("whole"))
    if opened._map is not None:  # As if the process had been killed in the middle of `add`.
        body = record("half")[HEAD_BYTES:]
        start = opened._end + HEAD_BYTES
        opened._map[start : start + len(body)] = body
    assert left_in(opened) == record("whole")


def test_records_that_do_not_fit_are_left_to_the_database(opened: Tail) -> None:
    assert not opened.add(record("x" * ROOM_BYTES))
    assert left_in(opened) == b""
    large = record("x" * (ROOM_BYTES // 2))
    assert opened.add(large)
    assert not opened.add(large)
    assert left_in(opened) == large


def test_an_empty_tail_leaves_no_file(opened: Tail, tmp_path: Path) -> None:
    path = tail_of(tmp_path / "run.sqlite")
    opened.add(record("a"))
    opened.clear()
    opened.close()
    assert not path.exists()


@given(st.lists(st.text(max_size=50), max_size=8), st.binary(max_size=60))
def test_anything_after_complete_records_is_ignored(texts: list[str], rest: bytes) -> None:
    whole = b"".join(record(text) for text in texts)
    assert end_of(whole) == len(whole)
    assert end_of(whole + bytes(HEAD_BYTES) + rest) == len(whole)


@pytest.mark.parametrize("kind", ["ext4", "unknown"])
def test_records_survive_sigkill(tmp_path: Path, kind: str) -> None:
    program = f"""
import os, signal, sys
from pathlib import Path
from rlm.records.journal import records
from tests.records.journal.test_tail import record
records._file_system = lambda device: {kind!r}
one = records.Tail(Path({str(tmp_path / "run.sqlite")!r}))
one.open()
for number in range(50):
    one.add(record(str(number)))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -signal.SIGKILL
    one = Tail(tmp_path / "run.sqlite")
    assert one.records() == b"".join(record(str(number)) for number in range(50))
    one.close()
    assert tail_of(tmp_path / "run.sqlite").exists()  # It was not taken over yet.


def test_a_disk_that_cannot_preallocate_is_still_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records, "_file_system", lambda device: "ext4")
    monkeypatch.setattr(os, "posix_fallocate", full)
    one = Tail(tmp_path / "run.sqlite")
    one.open()
    assert one._map is None
    assert one.add(record("a"))
    one.clear()
    one.close()


def test_the_type_of_a_file_system_is_a_name_or_empty(tmp_path: Path) -> None:
    assert isinstance(records._file_system(tmp_path.stat().st_dev), str)
    assert records._file_system(os.makedev(4000, 4000)) == ""
