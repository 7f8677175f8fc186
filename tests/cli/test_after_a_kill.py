"""SIGKILL in the middle of a batch, then every command as a new user would try it."""

import json
import signal
from pathlib import Path

import pytest

from tests.cli.journaled import ANSWER, CONTEXT, QUERY, SECONDS, killed, story
from tests.cli.running import one_clear_line


def test_a_killed_run_can_be_listed_shown_resumed_replayed_and_forked(tmp_path: Path) -> None:
    with killed(tmp_path) as (told, run_id):
        (listed,) = told.runs()
        assert (listed["run_id"], listed["status"], listed["query"]) == (
            run_id,
            "interrupted",
            QUERY,
        )
        assert (listed["steps"], listed["requests"]) == (2, 4)
        assert listed["cost_usd"] > 0

        shown = told.rlm("show", "last")
        assert shown.returncode == 0
        assert "interrupted" in shown.stdout
        assert "\nstep 1: " in shown.stdout
        assert "\n  openai-compatible/m replied: " in shown.stdout
        assert told.asked() == []

        resumed = told.rlm("resume", run_id[-8:])
        assert (resumed.returncode, resumed.stdout) == (0, f"{ANSWER}\n"), resumed.stderr
        assert f"run {run_id} ended: answer, 3 steps, 6 requests" in resumed.stderr
        asked = told.asked()
        assert len(asked) == 2  # the requests in flight, and the step that had not begun
        assert asked[0] == "Describe gamma."

        replayed = told.rlm("replay", run_id, LLM_BASE_URL="", LLM_API_KEY="")
        assert (replayed.returncode, replayed.stderr) == (0, ""), replayed.stdout
        assert replayed.stdout.startswith(f"OK: run {run_id} was replayed without a difference; ")

        (tmp_path / "other.py").write_text("FINAL(notes[0].upper())")
        edited = told.rlm("fork", run_id, "--step", "3", "--edit", "other.py")
        assert (edited.returncode, edited.stdout) == (0, "FIRST\n"), edited.stderr
        assert told.asked() == []

        again = told.rlm("fork", "last", "--step", "3")
        assert (again.returncode, again.stdout) == (0, "asked again\n"), again.stderr
        assert len(told.asked()) == 1

        runs = told.runs()
        assert [each["status"] for each in runs] == ["answer"] * 3
        assert runs[2]["run_id"] == run_id
        assert runs[1]["forked_from"] == run_id
        assert runs[1]["cost_usd"] == 0  # An edited reply costs nothing, nor do shared steps.
        assert 0 < runs[0]["cost_usd"] < runs[2]["cost_usd"]


@pytest.mark.heavy
def test_an_answered_run_can_be_repeated_without_key_context_or_server(tmp_path: Path) -> None:
    with story(tmp_path, held_back=0) as told:
        process = told.ask("--json")
        out, _ = process.communicate(timeout=SECONDS)
        first = json.loads(out)
        told.asked()
        for context in (tmp_path / "state" / "contexts").iterdir():
            context.unlink()
        again = told.rlm("resume", first["run_id"], "--json", LLM_BASE_URL="", LLM_API_KEY="")
        assert json.loads(again.stdout) == first
        assert "already has an answer" in again.stderr
        assert told.rlm("resume", "last", "--quiet").stderr == ""
        assert told.asked() == []


@pytest.mark.heavy
def test_of_two_processes_resuming_a_run_one_wins(tmp_path: Path) -> None:
    with killed(tmp_path, held_back=2) as (told, run_id):
        winner = told.start("resume", run_id)
        told.wait_for_replies(4)
        (listed,) = told.runs()
        assert listed["status"] == "running"

        loser = told.rlm("resume", run_id)
        assert (loser.returncode, loser.stdout) == (1, "")
        assert f"process {winner.pid} is executing run {run_id}" in one_clear_line(loser.stderr)

        removed = told.rlm("rm", run_id)
        assert (removed.returncode, removed.stdout) == (1, "")
        assert f"process {winner.pid}" in one_clear_line(removed.stderr)
        assert told.asked() == ["Describe gamma."]  # the winner's

        winner.send_signal(signal.SIGINT)
        _, rest = winner.communicate(timeout=SECONDS)
        assert winner.returncode == 130
        assert f"Continue with: rlm resume {run_id}\n" in rest
        done = told.rlm("resume", run_id)
        assert done.stdout == f"{ANSWER}\n"


@pytest.mark.heavy
@pytest.mark.parametrize("given", [[], ["-f", "words.txt"], ["-f", "other.txt"], ["-f", "copy"]])
def test_a_missing_context_can_be_given_again_and_is_checked(
    tmp_path: Path, given: list[str]
) -> None:
    with killed(tmp_path) as (told, run_id):
        (tmp_path / "other.txt").write_text("something else")
        (tmp_path / "copy").write_text(CONTEXT)
        for context in (tmp_path / "state" / "contexts").iterdir():
            context.unlink()
        done = told.rlm("resume", run_id, *given)
        if not given:
            assert done.returncode == 1
            assert "is gone" in done.stderr
            assert "pass it again with -f FILE" in one_clear_line(done.stderr)
        elif given[1] == "other.txt":
            assert done.returncode == 1
            assert "other.txt is not the context of run" in one_clear_line(done.stderr)
        else:
            assert (done.returncode, done.stdout) == (0, f"{ANSWER}\n"), done.stderr
            assert len(told.asked()) == 2


@pytest.mark.heavy
def test_replaying_over_another_context_shows_the_differences(tmp_path: Path) -> None:
    with story(tmp_path, held_back=0) as told:
        told.ask("--log-dir", "logs").communicate(timeout=SECONDS)
        (log,) = (tmp_path / "logs").iterdir()
        same = told.rlm("replay", str(log))
        assert (same.returncode, same.stdout[:3]) == (0, "OK:"), same.stdout + same.stderr
        (tmp_path / "other.txt").write_text("alpha delta")
        other = told.rlm("replay", str(log), "-f", "other.txt")
        assert other.returncode == 1
        lines = other.stdout.splitlines()
        assert lines[0].startswith("Diverged: ")
        assert any(line.startswith("  -") for line in lines)
        assert any(line.startswith("  +") for line in lines)
        as_json = told.rlm("replay", str(log), "-f", "other.txt", "--json")
        report = json.loads(as_json.stdout)
        assert (as_json.returncode, report["same"]) == (1, False)
        assert report["differences"][0]["where"] in lines[0]
