"""`rlm runs`: every run there is, the newest first, whatever the journals hold."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm.cli._listing import age
from rlm.cli.runs import STATUSES
from rlm.limits import Limits
from rlm.records.journal import RunSummary
from rlm.records.journal.facts import RunStatus
from rlm.records.recorders.console import CONTROL
from tests.cli import kept
from tests.cli.scripts import HOSTILE

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[2]


def listed(run: Run, *options: str) -> list[dict[str, Any]]:
    code, out, _ = run("runs", "--json", *options)
    assert code == 0
    found: list[dict[str, Any]] = json.loads(out)
    return found


def test_runs_are_printed_as_a_table_or_json(state: Path, run: Run) -> None:
    answered, stopped = kept.offline(state), kept.limited(state)
    code, out, err = run("runs")
    head, *rows = [line.split() for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert head == ["run", "age", "status", "steps", "tokens", "cost", "query"]
    assert [row[0] for row in rows] == [stopped.run_id[-8:], answered.run_id[-8:]]
    assert "limit" in rows[0]
    assert out.splitlines()[2].endswith(f"$0.0000  {kept.QUESTION}")
    first, second = listed(run)
    assert [first["run_id"], second["run_id"]] == [stopped.run_id, answered.run_id]
    assert list(first) == list(RunSummary.__struct_fields__)
    assert (second["status"], second["answer"]) == ("passages", answered.answer)
    assert answered.answer == kept.FOUND
    assert (second["tokens"], second["steps"]) == (
        answered.usage.total.total_tokens,
        answered.steps,
    )


def test_the_list_can_be_filtered(state: Path, run: Run) -> None:
    for number in range(3):
        kept.limited(state, f"20261115-12000{number}-000-0000000{number}")
    kept.offline(state, "20261115-110000-000-aaaaaaaa")
    assert [row["run_id"][-8:] for row in listed(run, "-n", "2")] == ["00000002", "00000001"]
    assert [row["status"] for row in listed(run, "--status", "passages")] == ["passages"]
    assert len(listed(run, "--all")) == 4
    code, out, err = run("runs", "-n", "1")
    assert (code, len(out.splitlines())) == (0, 2)
    assert err == "3 older runs not shown; --all lists them, -n N the newest N.\n"
    assert run("runs", "--status", "error")[1:] == ("", "None of 4 runs has the status error.\n")


def test_the_status_limit_includes_runs_that_used_up_their_steps(state: Path, run: Run) -> None:
    kept.limited(state)
    kept.scripted(state, "print(1)", "print(2)", limits=Limits(max_steps=1))
    kept.offline(state)
    assert {row["status"] for row in listed(run, "--status", "limit")} == {"steps", "limit"}
    assert [row["status"] for row in listed(run, "--status", "steps")] == ["steps"]
    assert run("runs", "--status", "answered") == run("runs", "--status", "answer")
    assert run("runs", "--status", "Failed") == run("runs", "--status", "error")
    assert run("runs", "--status", "killed") == run("runs", "--status", "interrupted")


def test_the_statuses_are_those_of_journals_and_of_the_viewer() -> None:
    assert set(STATUSES) == set(get_args(RunStatus))
    page = (ROOT / "visualizer" / "src" / "pages" / "filter.ts").read_text("utf-8")
    (listed,) = re.findall(r"STANDINGS = \[(.*)\]", page)
    assert tuple(re.findall(r"'(\w+)'", listed)) == STATUSES


def test_runs_with_custom_ids_are_sorted_by_time(state: Path, run: Run) -> None:
    kept.limited(state, "zebra")
    kept.limited(state, "20261115-120000-000-00000001")
    os.utime(state / "runs" / "zebra.sqlite", (0, 0))
    assert [row["run_id"] for row in listed(run)][-1] == "zebra"
    assert "\nzebra " in run("runs")[1]


def test_an_empty_list_is_not_an_error(state: Path, run: Run) -> None:
    assert run("runs", "--json")[:2] == (0, "[]\n")
    code, out, err = run("runs")
    assert (code, out) == (0, "")
    assert err == f"No runs in {state} yet; `rlm ask` makes one.\n"


def test_an_unreadable_run_is_reported_and_the_others_listed(state: Path, run: Run) -> None:
    good = kept.limited(state).run_id
    runs = state / "runs"
    (runs / "garbage.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 4_000)
    (runs / "empty.sqlite").touch()
    (runs / "\x1b[31m.sqlite").write_text("no database")
    shutil.copy(runs / f"{good}.sqlite", runs / "copy.sqlite")
    (runs / "link.sqlite").symlink_to("/dev/zero")
    code, out, err = run("runs")
    assert code == 0
    assert len(out.splitlines()) == 2
    assert good[-8:] in out
    assert len(err.splitlines()) == 4
    assert f"Skipped run copy: its journal belongs to another run, {good}" in err
    assert CONTROL.search(err) is None
    assert [row["run_id"] for row in listed(run)] == [good]


def test_hostile_text_is_escaped(state: Path, run: Run) -> None:
    kept.scripted(state, "FINAL(1)", query=HOSTILE)
    for options in ([], ["--json"]):
        _, out, _ = run("runs", *options)
        assert CONTROL.search(out) is None
        assert len(out.splitlines()) == (1 if options else 2)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**60) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
END = {"stop_reason": "answer", "steps": 1, "seconds": 1.0, "usage": {"input_tokens": 1}}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(value=anything, name=st.sampled_from(["", *END]), what=st.sampled_from(["run", "end"]))
def test_a_run_with_invalid_values_is_omitted(
    one_run: Path, run: Run, value: Any, name: str, what: str
) -> None:
    (file,) = (one_run / "runs").glob("*.sqlite")
    before = file.read_bytes()
    try:
        kept.rewrite(one_run, file.stem, what, {**END, name: value} if name else value)
        code, out, err = run("runs", "--json", RLM_STATE_DIR=str(one_run))
    finally:
        file.write_bytes(before)
    assert code == 0
    assert "unexpected" not in err
    rows = json.loads(out, parse_constant=pytest.fail)
    assert len(rows) + len(err.splitlines()) == 1
    for row in rows:
        msgspec.convert(row, RunSummary)


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = tmp_path_factory.mktemp("one")
    kept.limited(state)
    return state


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "now"),
        (0.4, "now"),
        (59, "59 s"),
        (61, "1 min"),
        (7_300, "2 h"),
        (90_000_000, "1,041 d"),
    ],
)
def test_an_age_is_shown_in_one_unit(seconds: float, told: str) -> None:
    assert age(seconds) == told


def test_an_unreadable_folder_is_reported_in_one_line(state: Path, run: Run) -> None:
    state.mkdir()
    (state / "runs").write_text("no folder")
    code, out, err = run("runs")
    assert (code, out) == (1, "")
    assert "Not a directory" in err


def test_an_exported_run_calls_its_passages_the_same_everywhere(state: Path, run: Run) -> None:
    kept.offline(state)
    code, out, _ = run("export", "last", "--format", "markdown")
    assert code == 0
    assert out.count("Passages, not an answer") == 2
    assert "**Answer**" not in out
    assert "sent to the model (" in out
