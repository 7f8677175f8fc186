"""Operators and the journal: a killed one goes on and pays nothing twice; a replay is the same."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rlm import Limits, ModelError, operators
from rlm.errors import ConfigError
from rlm.records.journal import Places
from rlm.replay import replay
from tests.operator_reader import Reader, codes_in

ROOT = Path(__file__).resolve().parents[3]
ITEMS = 5_000
PROMPTS = 100

PROGRAM = """
import os, sys
from pathlib import Path
from typing import Any
from rlm import Limits, operators
from tests.operator_reader import Reader, codes_in

folder, log, last = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

def label(item, prompt):
    return codes_in(prompt)["even" if int(item.split()[1]) % 2 == 0 else "odd"]

reader = Reader(label)
plain = reader.reply

def reply(prompt):
    number = len(log.read_text().splitlines()) if log.exists() else 0
    if last and number >= last:
        os._exit(9)
    with log.open("a") as file:
        file.write(str(hash(prompt)) + "\\n")
    return plain(prompt)

reader.reply = reply
found = operators.classify(
    [f"item {n}" for n in range(5_000)], ["even", "odd"], model=reader,
    journal=folder, run_id="killed", limits=Limits(max_concurrent_calls=1),
)
wrong = [n for n, label in enumerate(found) if label != ("odd" if n % 2 else "even")]
print(len(found), len(wrong), len(found.missing), len(reader.prompts))
"""


def start(folder: Path, log: Path, last: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(log), str(last)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_killed_classify_over_5000_items_resumes_and_pays_nothing_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for last in (31, 77):
        assert start(tmp_path / "state", log, last).returncode == 9
    ended = start(tmp_path / "state", log, 0)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == [str(ITEMS), "0", "0", str(PROMPTS - 77)]
    answered = Counter(log.read_text().split())
    assert len(answered) == PROMPTS
    assert set(answered.values()) == {1}


def parity(item: str, prompt: str) -> str:
    return codes_in(prompt)["odd" if int(item.split()[1]) % 2 else "even"]


def test_an_interrupted_operator_is_resumed_by_its_id(tmp_path: Path) -> None:
    items = [f"item {number}" for number in range(100)]
    reader = Reader(parity)
    limits = Limits(max_calls=1, max_concurrent_calls=1)
    options: dict[str, Any] = {"journal": tmp_path, "run_id": "one"}
    found = operators.classify(items, ["even", "odd"], model=reader, limits=limits, **options)
    assert len(found.missing) == 50
    found = operators.classify(items, ["even", "odd"], model=reader, **options)
    assert found.missing == []
    assert len(reader.prompts) == 2
    again = operators.classify(items, ["even", "odd"], model=reader, **options)
    assert again == found
    assert (again.note, len(reader.prompts)) == (found.note, 2)


def test_another_question_under_the_same_id_is_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"journal": tmp_path, "run_id": "one", "model": Reader(parity)}
    operators.classify(["item 1"], ["even", "odd"], **options)
    with pytest.raises(Exception, match="one"):
        operators.classify(["item 2"], ["even", "odd"], **options)


def test_a_recorded_operator_replays_identically(tmp_path: Path) -> None:
    items = [f"item {number}" for number in range(120)]
    found = operators.classify(
        items, ["even", "odd"], model=Reader(parity), journal=tmp_path, run_id="one", check="all"
    )
    report = replay(Places(tmp_path).journal_of("one"), {"items": items})
    assert report.same, report.differences
    assert report.answered == len(
        [event for event in found.run.events if type(event).__name__ == "CallEnded"]
    )


def test_a_failing_server_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    reader = Reader(parity)
    plain, state = reader.reply, {"broken": True}

    def reply(prompt: str) -> str:
        if state["broken"] and len(reader.prompts) > 1:
            raise ModelError("out of order", retryable=False)
        return plain(prompt)

    reader.reply = reply  # type: ignore[method-assign]
    items = [f"item {number}" for number in range(150)]
    options: dict[str, Any] = {
        "journal": tmp_path,
        "run_id": "one",
        "limits": Limits(max_concurrent_calls=1),
    }
    found = operators.classify(items, ["even", "odd"], model=reader, **options)
    assert len(found.missing) == 100
    assert "out of order" in found.note


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"guide": "Zero is odd."}, "guide"),
        ({"check": "none"}, "check"),
        ({"labels": ["x" * 600, "other"]}, "labels"),
    ],
)
def test_a_run_with_other_options_is_not_the_same_run(
    changed: dict[str, Any], name: str, tmp_path: Path
) -> None:
    def classify(**options: Any) -> operators.Results[str | None]:
        asked: dict[str, Any] = {"labels": ["x" * 600, "y"], **options}
        reader = Reader(lambda item, prompt: "A")
        return operators.classify(["1", "2"], model=reader, journal=tmp_path, run_id="one", **asked)

    first = classify()
    assert classify() == first
    with pytest.raises(ConfigError, match=f"a different {name}; omit run_id"):
        classify(**changed)
