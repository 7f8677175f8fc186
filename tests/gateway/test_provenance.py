"""Provenance: every line sealed by the one before it."""

import json
import resource
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm.errors import ConfigError
from rlm.gateway.provenance import FIRST_SEAL, Provenance, verify

SHARE = st.floats(0, 1)


def written(path: Path, count: int = 5) -> list[str]:
    one = Provenance(path)
    seals = [
        one.record(session=f"s{n % 2}", tool="rlm_read", spans=[[n, n + 1]]) for n in range(count)
    ]
    one.close()
    return seals


def test_an_intact_record_is_verified_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "log" / "provenance.jsonl"
    seals = written(path)
    assert verify(path).seal == seals[-1]
    again = written(path, 2)
    verdict = verify(path)
    assert (verdict.lines, verdict.seal, verdict.problem) == (7, again[-1], None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    one = Provenance(path)
    assert [entry["number"] for entry in one.entries("s1")] == [2, 4, 7]
    one.close()


def test_an_empty_record_is_intact(tmp_path: Path) -> None:
    (tmp_path / "p").touch()
    assert verify(tmp_path / "p").seal == FIRST_SEAL


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_every_change_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    path = tmp_path_factory.mktemp("p") / "p"
    seals = written(path)
    text = path.read_bytes()
    how = data.draw(st.sampled_from(["flip", "drop", "swap", "double", "cut", "insert"]))
    rows = text.splitlines(keepends=True)
    n = data.draw(st.integers(0, 3))
    if how == "flip":
        at = int(data.draw(SHARE) * (len(text) - 1))
        changed = text[:at] + bytes([text[at] ^ data.draw(st.sampled_from([1, 2, 4, 32]))])
        changed += text[at + 1 :]
    elif how == "drop":
        changed = b"".join(rows[:n] + rows[n + 1 :])
    elif how == "swap":
        changed = b"".join([*rows[:n], rows[n + 1], rows[n], *rows[n + 2 :]])
    elif how == "double":
        changed = b"".join([*rows[: n + 1], *rows[n:]])
    elif how == "cut":
        changed = text[: 1 + int(data.draw(SHARE) * (len(text) - 2))]
    else:
        changed = b"".join([*rows[:n], b'{"number": 1}\n', *rows[n:]])
    path.write_bytes(changed)
    verdict = verify(path)
    is_same = (
        [json.loads(r) for r in changed.splitlines() if r] == list(map(json.loads, rows))
        if (how == "flip" and verdict.problem is None)
        else False
    )
    assert verdict.problem is not None or verdict.seal != seals[-1] or is_same


def test_a_damaged_record_is_not_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "p"
    written(path)
    path.write_bytes(path.read_bytes()[:-5])
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="line 5: it is cut off"):
        Provenance(path)
    assert path.read_bytes() == before


def test_only_one_gateway_can_write_to_a_record(tmp_path: Path) -> None:
    one = Provenance(tmp_path / "p")
    with pytest.raises(ConfigError, match="another gateway is writing"):
        Provenance(tmp_path / "p")
    one.close()
    Provenance(tmp_path / "p").close()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError):
        Provenance(tmp_path / "link")


def test_a_full_disk_leaves_no_partial_line(tmp_path: Path) -> None:
    record = Provenance(tmp_path / "record.jsonl")
    record.record(tool="first")
    size = record.path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            record.record(tool="second")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert record.path.stat().st_size == size
    record.record(tool="third")
    record.close()
    found = verify(record.path)
    assert (found.lines, found.problem) == (2, None)
