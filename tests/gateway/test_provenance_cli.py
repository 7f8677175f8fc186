"""`rlm provenance verify`: intact, modified and truncated records, and known seals."""

import json
from pathlib import Path

import pytest

from rlm.gateway.provenance import FIRST_SEAL, Provenance
from tests.cli.conftest import Run


@pytest.fixture
def record(tmp_path: Path) -> Path:
    written = Provenance(tmp_path / "record.jsonl")
    for number in range(6):
        written.record(principal="anne", session=f"s_{number % 2}", tool="rlm_read")
    written.close()
    return written.path


def seals(record: Path) -> list[str]:
    return [json.loads(line)["seal"] for line in record.read_text().splitlines()]


def test_an_intact_record_is_reported_with_its_last_seal(run: Run, record: Path) -> None:
    code, out, _ = run("provenance", "verify", str(record))
    assert code == 0
    assert seals(record)[-1] in out
    assert "The file is intact." in out


def test_the_lines_of_a_session_are_counted(run: Run, record: Path) -> None:
    code, out, _ = run("provenance", "verify", str(record), "--session", "s_1", "--json")
    assert code == 0
    assert json.loads(out)["session_lines"] == 3


def test_a_seal_kept_elsewhere_is_found_in_the_record(run: Run, record: Path) -> None:
    code, out, _ = run("provenance", "verify", str(record), "--seal", seals(record)[3], "--json")
    assert (code, json.loads(out)["sealed_at_line"]) == (0, 4)


def test_a_truncated_record_is_detected_by_the_seal(run: Run, record: Path) -> None:
    last = seals(record)[-1]
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(lines[:-1]))
    assert run("provenance", "verify", str(record))[0] == 0
    code, out, _ = run("provenance", "verify", str(record), "--seal", last)
    assert code == 1
    assert "its end was cut off" in out


@pytest.mark.parametrize("change", ["changed", "dropped", "swapped", "half", "foreign"])
def test_a_modified_record_is_detected(run: Run, record: Path, change: str) -> None:
    lines = record.read_text().splitlines(keepends=True)
    spoiled = {
        "changed": [lines[0], lines[1].replace("anne", "bert"), *lines[2:]],
        "dropped": [lines[0], *lines[2:]],
        "swapped": [lines[0], lines[2], lines[1], *lines[3:]],
        "half": [lines[0], lines[1][:-20]],
        "foreign": [lines[0], "[]\n"],
    }
    record.write_text("".join(spoiled[change]))
    code, out, _ = run("provenance", "verify", str(record), "--json")
    found = json.loads(out)
    assert (code, found["whole"], found["lines"]) == (1, False, 1)
    assert found["problem"].startswith("line 2: ")


def test_another_file_is_reported_as_such(run: Run, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("something else\n")
    code, out, _ = run("provenance", "verify", str(tmp_path / "other.txt"))
    assert code == 1
    assert out.startswith("result       This is no provenance file of rlm mcp, or all of it")
    assert FIRST_SEAL not in out


def test_an_empty_record_is_reported_as_intact(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    code, out, _ = run("provenance", "verify", str(tmp_path / "empty"), "--json")
    assert (code, json.loads(out)["seal"]) == (0, FIRST_SEAL)


def test_a_missing_record_is_reported(run: Run) -> None:
    code, _, err = run("provenance", "verify", "nowhere")
    assert code == 1
    assert "nowhere" in err
