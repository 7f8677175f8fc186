"""`rlm rm` removes the named runs with their contexts, and leaves everything in use."""

import os
import time
from pathlib import Path

import pytest

from rlm import RLM
from rlm.records.journal import Archive, Journal, Places
from tests.cli import kept
from tests.cli.conftest import Run
from tests.cli.running import in_terminals, one_clear_line

DAY = 86_400


def left(state: Path) -> set[str]:
    return {each.run_id for each in Places(state).listed()}


def contexts(state: Path) -> int:
    return len(list((state / "contexts").iterdir()))


def test_removing_a_run_removes_its_context_at_once(state: Path, run: Run) -> None:
    first, second = kept.offline(state), kept.limited(state)
    with RLM(kept.OFFLINE, journal=state) as rlm:
        other = rlm.ask(kept.QUESTION, "something else")
    assert contexts(state) == 2
    assert run("rm", other.run_id[-8:]) == (0, f"{other.run_id}\n", "")
    assert (left(state), contexts(state)) == ({first.run_id, second.run_id}, 1)
    assert run("rm", "last")[0] == 0
    assert contexts(state) == 1  # The first run has the same context.
    assert run("rm", first.run_id)[0] == 0
    assert (left(state), contexts(state)) == (set(), 0)
    assert list((state / "runs").iterdir()) == []


def test_a_run_in_progress_is_refused_by_name_and_the_others_removed(state: Path, run: Run) -> None:
    first, second = kept.offline(state).run_id, kept.limited(state).run_id
    journal = Journal(Places(state).journal_of(first))
    try:
        code, out, err = run("rm", first, second)
        assert (code, out) == (1, f"{second}\n")
        assert f"process {os.getpid()} is executing run {first}" in one_clear_line(err)
        assert run("rm", "--all", "--yes")[0] == 1
        assert left(state) == {first}
    finally:
        journal.close()


def test_removing_many_runs_needs_confirmation(state: Path, run: Run) -> None:
    for _ in range(2):
        kept.limited(state)
    code, out, err = run("rm", "--all")
    assert (code, out, len(left(state))) == (2, "", 2)
    assert "this would remove 2 runs; pass --yes" in one_clear_line(err)
    code, out, _ = run("rm", "--all", "--yes")
    assert (code, len(out.split()), left(state)) == (0, 2, set())
    assert run("rm", "--all", "--yes") == (0, "", "No run matches.\n")


def test_confirmation_is_requested_in_a_terminal(state: Path) -> None:
    for _ in range(2):
        kept.limited(state)
    seen = in_terminals("rm", "--all", typed="n\n", RLM_STATE_DIR=str(state))
    assert (seen.code, len(left(state))) == (0, 2)
    assert b"Remove 2 runs? [y/N]: " in seen.stderr
    assert b"Nothing is removed." in seen.stderr
    seen = in_terminals("rm", "--all", typed="y\n", RLM_STATE_DIR=str(state))
    assert (seen.code, left(state)) == (0, set())


def test_runs_can_be_removed_by_age_and_status(state: Path, run: Run) -> None:
    old_answer, old_limit, new_limit = (
        make(state).run_id for make in (kept.offline, kept.limited, kept.limited)
    )
    then = time.time() - 8 * DAY
    for each in (old_answer, old_limit):
        os.utime(state / "runs" / f"{each}.sqlite", (then, then))
    assert run("rm", "--older-than", "9")[1] == ""
    assert run("rm", "--older-than", "7", "--status", "limit")[1] == f"{old_limit}\n"
    assert run("rm", "--status", "limit")[1] == f"{new_limit}\n"
    assert run("rm", "--older-than", "0.5")[1] == f"{old_answer}\n"


def test_an_unreadable_run_can_be_removed(state: Path, run: Run) -> None:
    kept.limited(state)
    (state / "runs" / "broken.sqlite").write_text("no database")
    assert run("rm", "broken")[:2] == (0, "broken\n")
    assert len(left(state)) == 1
    archive = Archive(Places(state))
    assert [archive.facts(each).query for each in Places(state).listed()] == [kept.QUESTION]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name runs, or choose them"),
        (["last", "--all"], "name runs, or choose them"),
        (["--all", "--status", "error"], "--all cannot be combined"),
        (["--older-than", "-1"], "is not a number above 0"),
        (["--status", "dead"], "'dead' is not one of"),
    ],
)
def test_wrong_usage_of_rm(run: Run, arguments: list[str], told: str) -> None:
    code, out, err = run("rm", *arguments)
    assert (code, out) == (2, "")
    assert told in one_clear_line(err)
