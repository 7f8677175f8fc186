"""Judgments are kept: by many writers at once, within limits, and never over something else."""

import math
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rlm.errors import ConfigError
from rlm.records.journal import Archive, Places, RunFile
from rlm.records.judging import Judgment, JudgmentChange, Judgments
from rlm.records.judging import judgments as module


def test_nothing_is_stored_before_the_first_judgment(tmp_path: Path) -> None:
    judgments = Judgments(tmp_path / "state")
    assert judgments.all() == {}
    assert judgments.get("r") == Judgment()
    judgments.forget(["r"])
    with pytest.raises(ConfigError, match="can't be a tag"):
        judgments.change("r", JudgmentChange(add_tags=("not a tag",)))
    assert not (tmp_path / "state").exists()


def test_a_change_adds_and_removes(tmp_path: Path) -> None:
    judgments = Judgments(tmp_path / "state")
    first = judgments.change(
        "r", JudgmentChange(add_tags=("a", "b"), score=0.5, comment=" Good.\r\n")
    )
    assert (first.tags, first.score, first.comments[0].text) == (("a", "b"), 0.5, "Good.")
    second = judgments.change("r", JudgmentChange(add_tags=("c",), remove_tags=("a", "x")))
    assert (second.tags, second.score, second.comments) == (("b", "c"), 0.5, first.comments)
    assert Judgments(tmp_path / "state").get("r") == second
    gone = JudgmentChange(remove_tags=("b", "c"), score=None, remove_comment=first.comments[0].id)
    assert judgments.change("r", gone) == Judgment()
    assert judgments.all() == {}


def test_only_the_owner_can_read_the_judgments(tmp_path: Path) -> None:
    judgments = Judgments(tmp_path / "state")
    judgments.change("r", JudgmentChange(score=1))
    assert stat.S_IMODE(judgments.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(judgments.path.parent.stat().st_mode) == 0o700


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / module.FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="can't be used"):
        Judgments(tmp_path / "state").change("r", JudgmentChange(score=1))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "change",
    [
        JudgmentChange(add_tags=("",)),
        JudgmentChange(add_tags=("-a",)),
        JudgmentChange(add_tags=("a" * 51,)),
        JudgmentChange(add_tags=("a b",)),
        JudgmentChange(add_tags=("a\n",)),
        JudgmentChange(add_tags=("<b>",)),
        JudgmentChange(add_tags=tuple(f"t{n}" for n in range(21))),
        JudgmentChange(score=math.inf),
        JudgmentChange(score=math.nan),
        JudgmentChange(score=1e10),
        JudgmentChange(comment=""),
        JudgmentChange(comment=" \n "),
        JudgmentChange(comment="x" * 4_001),
    ],
)
def test_an_invalid_change_stores_nothing(tmp_path: Path, change: JudgmentChange) -> None:
    judgments = Judgments(tmp_path)
    before = judgments.change("r", JudgmentChange(add_tags=("kept",)))
    with pytest.raises(ConfigError):
        judgments.change("r", change)
    assert judgments.get("r") == before


def test_the_number_of_tags_and_comments_of_a_run_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judgments = Judgments(tmp_path)
    for number in range(module.MAX_COMMENTS):
        judgments.change("r", JudgmentChange(comment=f"{number}"))
    with pytest.raises(ConfigError, match="at most 50 comments"):
        judgments.change("r", JudgmentChange(comment="one more"))
    monkeypatch.setattr(module, "MAX_RUNS", 1)
    with pytest.raises(ConfigError, match="no room"):
        judgments.change("other", JudgmentChange(score=1))
    judgments.change("r", JudgmentChange(score=1))  # One that is there may change.


@pytest.mark.parametrize("run_id", ["", "x" * 501])
def test_an_impossible_run_id_is_refused(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(ConfigError, match="no such run"):
        Judgments(tmp_path).change(run_id, JudgmentChange(score=1))


@given(st.text(max_size=300), st.text(max_size=100))
def test_any_id_and_comment_come_back_unchanged(run_id: str, comment: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        judgments = Judgments(Path(folder))
        try:
            after = judgments.change(run_id, JudgmentChange(comment=comment))
        except ConfigError:
            return
        assert judgments.all() == {run_id: after}


# -- several at once ------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from rlm.records.judging import JudgmentChange, Judgments
judgments = Judgments(Path(sys.argv[1]))
for number in range(6):
    judgments.change("r", JudgmentChange(add_tags=(f"p{sys.argv[2]}n{number}",)))
    judgments.change("r", JudgmentChange(comment=f"{sys.argv[2]} {number}"))
"""


def test_concurrent_processes_lose_no_changes(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "state"), str(number)])
        for number in range(3)
    ]
    assert [each.wait(120) for each in writers] == [0, 0, 0]
    found = Judgments(tmp_path / "state").get("r")
    assert sorted(found.tags) == sorted(f"p{p}n{n}" for p in range(3) for n in range(6))
    assert sorted(each.text for each in found.comments) == sorted(
        f"{p} {n}" for p in range(3) for n in range(6)
    )


def test_concurrent_threads_lose_no_changes(tmp_path: Path) -> None:
    judgments = Judgments(tmp_path)

    def write(number: int) -> None:
        judgments.change(f"r{number % 2}", JudgmentChange(add_tags=(f"t{number}",)))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(len(each.tags) for each in judgments.all().values()) == 12


def test_changes_of_another_process_are_seen_at_once(tmp_path: Path) -> None:
    one, other = Judgments(tmp_path), Judgments(tmp_path)
    for number in range(20):
        other.change("r", JudgmentChange(score=number % 2))
        assert one.get("r").score == number % 2


# -- what is wrong with the file ------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"x" * 5_000, b"SQLite format 3\0" + bytes(3_000)])
def test_a_damaged_file_is_refused_and_left_unchanged(tmp_path: Path, content: bytes) -> None:
    judgments = Judgments(tmp_path)
    judgments.path.write_bytes(content)
    for use in (judgments.all, lambda: judgments.change("r", JudgmentChange(score=1))):
        with pytest.raises(ConfigError, match="move it away"):
            use()
    assert judgments.path.read_bytes() == content


def test_a_partly_damaged_file_is_reported(tmp_path: Path) -> None:
    judgments = Judgments(tmp_path)
    for number in range(400):
        judgments.change(f"r{number}", JudgmentChange(score=number)) if number < 5 else None
    size = judgments.path.stat().st_size
    with judgments.path.open("r+b") as file:
        file.seek(size // 2)
        file.write(os.urandom(size // 2))
    with pytest.raises(ConfigError, match="move it away"):
        Judgments(tmp_path).all()


def test_another_version_is_refused(tmp_path: Path) -> None:
    judgments = Judgments(tmp_path)
    judgments.change("r", JudgmentChange(score=1))
    with sqlite3.connect(judgments.path) as connection:
        connection.execute("pragma user_version=7")
    connection.close()
    with pytest.raises(ConfigError, match="another version"):
        Judgments(tmp_path).get("r")


def test_rows_of_other_programs_are_skipped(tmp_path: Path) -> None:
    judgments = Judgments(tmp_path)
    kept = judgments.change("r", JudgmentChange(score=1))
    with sqlite3.connect(judgments.path) as connection:
        for name, value in {"a": b"{", "b": b"[1]", "c": "text", "d": b'{"score": 1e999}'}.items():
            connection.execute("insert into judgments values (?, ?)", (name, value))
    connection.close()
    found = Judgments(tmp_path).all()
    assert {run_id: each for run_id, each in found.items() if each} == {"r": kept}
    with pytest.raises(ConfigError, match="can't be read"):
        judgments.change("a", JudgmentChange(score=1))


def test_a_judgment_is_removed_with_its_run(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.prepare()
    path = places.journal_of("r")
    path.write_bytes(b"")
    judgments = Judgments(tmp_path)
    judgments.change("r", JudgmentChange(score=1))
    kept = judgments.change("r2", JudgmentChange(score=1))
    Archive(places).remove(RunFile("r", path, 0, 0))
    assert Judgments(tmp_path).all() == {"r2": kept}
    judgments.path.write_bytes(b"damaged" * 100)
    path.write_bytes(b"")
    Archive(places).remove(RunFile("r", path, 0, 0))
    assert not path.exists()


def test_a_score_of_minus_zero_is_stored_as_zero() -> None:
    assert JudgmentChange(score=-0.0).applied_to(Judgment()) == replace(Judgment(), score=0.0)
    assert str(JudgmentChange(score=-0.0).applied_to(Judgment()).score) == "0.0"
