"""`rlm judge`, and `--where` of `rlm runs` and `rlm export`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rlm.events import Event, ModelReplied
from rlm.records.judging import JudgmentChange, Judgments
from tests.cli import kept
from tests.cli.running import one_clear_line
from tests.records.trajectories.samples import one_run, tree, written

Run = Callable[..., tuple[int, str, str]]
ONE, TWO = "20261115-120001-000-00000001", "20261115-120002-000-00000002"


def rows(run: Run, *arguments: str) -> list[dict[str, Any]]:
    code, out, err = run("export", *arguments, "--format", "sft")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_tags_scores_and_comments(state: Path, run: Run) -> None:
    kept.offline(state, ONE)
    code, out, err = run("judge", "last", "--score", "0.9", "--tag", "good", "--comment", "So so.")
    assert (code, err) == (0, "")
    assert "score   0.9\ntags    good\n" in out
    assert out.endswith("    So so.\n")
    found = json.loads(run("judge", ONE, "--json")[1])
    assert (found["run_id"], found["tags"], found["score"]) == (ONE, ["good"], 0.9)
    comment = found["comments"][0]["id"]
    again = ("judge", ONE, "--untag", "good", "--no-score", "--uncomment", comment, "--json")
    assert json.loads(run(*again)[1]) == {"run_id": ONE}


@pytest.mark.parametrize(
    "options",
    [
        ("--score", "1", "--no-score"),
        ("--score", "much"),
        ("--score", "inf"),
        ("--tag", "two words"),
        ("--comment", ""),
        ("--uncomment", "abc"),
    ],
)
def test_wrong_options_are_reported_in_one_line(
    state: Path, run: Run, options: tuple[str, ...]
) -> None:
    kept.offline(state, ONE)
    code, out, err = run("judge", "last", *options)
    assert (code != 0, out) == (True, "")
    one_clear_line(err)


def test_a_log_can_be_judged_only_if_it_has_one_root_run(
    state: Path, run: Run, tmp_path: Path
) -> None:
    written(tmp_path / "one.jsonl", tree())
    assert json.loads(run("judge", "one.jsonl", "--tag", "a", "--json")[1])["run_id"] == "r"
    written(tmp_path / "two.jsonl", [*one_run("a"), *one_run("b")])
    code, _, err = run("judge", "two.jsonl", "--tag", "a")
    assert code == 1
    assert "2 root runs" in one_clear_line(err)


def test_hostile_comments_are_escaped(state: Path, run: Run) -> None:
    kept.offline(state, ONE)
    _, out, _ = run("judge", "last", "--comment", "a\x1b[2Jb\n[red]c")
    assert "\x1b" not in out


# -- conditions -----------------------------------------------------------------------------------


def test_runs_are_listed_by_a_condition(state: Path, run: Run) -> None:
    kept.offline(state, ONE)
    kept.limited(state, TWO)
    Judgments(state).change(ONE, JudgmentChange(score=0.9, add_tags=("good",)))
    listed = json.loads(run("runs", "--json", "--where", "score>0.8")[1])
    assert [(each["run_id"], each["tags"], each["score"]) for each in listed] == [
        (ONE, ["good"], 0.9)
    ]
    assert json.loads(run("runs", "--json", "--where", "status=limit")[1])[0]["run_id"] == TWO
    code, out, err = run("runs", "--where", "tag=x")
    assert (code, out, err) == (0, "", "None of 2 runs has tag=x.\n")
    code, _, err = run("runs", "--where", "scroe>1")
    assert code == 2
    assert "Did you mean score?" in one_clear_line(err)


def test_recorded_runs_are_exported_by_a_condition(state: Path, run: Run) -> None:
    kept.offline(state, ONE)
    kept.scripted(state, "FINAL('x')")
    Judgments(state).change(ONE, JudgmentChange(score=0.9, comment="Good."))
    found = rows(run, "--where", "score>0.8")
    assert {row["run_id"] for row in found} == {ONE}
    assert found[0]["score"] == 0.9
    assert found[0]["comments"][0]["text"] == "Good."
    others = rows(run, "--where", "not score>0.8")
    assert ONE not in {row["run_id"] for row in others}
    assert others[0]["score"] is None
    code, out, err = run("export", "--format", "sft", "--where", "score>2")
    assert (code, out) == (1, "")
    assert "none of 2 runs matches --where score>2.0" in one_clear_line(err)


def test_export_needs_a_run_or_a_condition(state: Path, run: Run) -> None:
    code, _, err = run("export", "--format", "sft")
    assert code == 2
    assert "--where" in err
    code, _, err = run("export", "--format", "sft", "--where", "score>1")
    assert code == 1
    assert "no runs in" in one_clear_line(err)


def told_apart(events: list[Event]) -> list[Event]:
    """Return the events with different replies, because equal rows are exported once."""
    return [
        replace(each, text=f"{each.run_id} {at}") if isinstance(each, ModelReplied) else each
        for at, each in enumerate(events)
    ]


def test_several_runs_and_a_folder(state: Path, run: Run, tmp_path: Path) -> None:
    kept.offline(state, ONE)
    (tmp_path / "same").mkdir()
    (tmp_path / "logs").mkdir()
    written(tmp_path / "same" / "a.jsonl", one_run("a"))
    written(tmp_path / "same" / "b.jsonl", one_run("b"))
    written(tmp_path / "logs" / "a.jsonl", told_apart(tree()))
    written(tmp_path / "logs" / "b.jsonl", told_apart(one_run("b")))
    assert {row["run_id"] for row in rows(run, "same")} == {"a"}, "the same is exported once"
    assert {row["run_id"] for row in rows(run, ONE, "logs")} == {
        ONE,
        "r",
        "r-c",
        "r-c-d",
        "r-e",
        "b",
    }
    Judgments(state).change("r", JudgmentChange(add_tags=("deep",)))
    found = rows(run, "logs", ONE, "--where", "tag=deep")
    assert {row["run_id"] for row in found} == {"r", "r-c", "r-c-d", "r-e"}
    assert all(row["tags"] == ["deep"] for row in found)


def test_reports_show_judgments(state: Path, run: Run) -> None:
    kept.offline(state, ONE)
    Judgments(state).change(
        ONE, JudgmentChange(score=0.5, add_tags=("a",), comment="<script>alert(1)</script>")
    )
    report = run("export", ONE, "--format", "markdown")[1]
    assert "Score: 0.5" in report
    assert "Tags: a" in report
    page = run("export", ONE, "--format", "html")[1]
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
