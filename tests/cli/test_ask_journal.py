"""`rlm ask` keeps its run: by default, unless it can't or must not, and says how to continue."""

import json
import re
import resource
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from rlm.records.journal import Places
from rlm.testing.fake_server import FakeServer
from rlm.testing.fake_server.script import Answer
from tests.cli.journaled import ANSWER, SECONDS, story
from tests.cli.running import QUESTION, TEXT, command, environment, one_clear_line, rlm
from tests.endpoint import endpoint

GO_ON = re.compile(r"^Continue with: rlm resume (\S+)(.*)$", re.MULTILINE)


def count(state: Path) -> int:
    return len(list(Places(state).listed()))


@pytest.mark.heavy
def test_a_run_that_asked_nobody_cost_nothing(tmp_path: Path) -> None:
    """And one that was stopped while it asked cost nobody knows what."""
    state: dict[str, Any] = {"RLM_STATE_DIR": str(tmp_path), "OPENAI_API_KEY": "sk-x"}
    done = rlm(
        *("ask", QUESTION, "-m", "openai/gpt-5-mini", "--max-tokens", "25", "--json"),
        stdin=TEXT,
        OPENAI_BASE_URL="http://127.0.0.1:9/v1",
        **state,
    )
    assert (done.returncode, json.loads(done.stdout)["cost_usd"]) == (3, 0)
    (listed,) = json.loads(rlm("runs", "--json", **state).stdout)
    assert (listed["requests"], listed["cost_usd"]) == (0, 0)
    assert "unknown" not in rlm("runs", **state).stdout
    assert "0 tokens, $0.0000, " in rlm("show", "last", **state).stdout
    began, goes_on = threading.Event(), threading.Event()

    def hangs(_: dict[str, Any]) -> str:
        began.set()
        goes_on.wait(SECONDS)
        return "FINAL(1)"

    with endpoint(hangs) as server:
        process = subprocess.Popen(
            command("ask", QUESTION, "-m", "openai-compatible/m", "--json"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment({**state, "LLM_BASE_URL": server.url}),
        )
        assert began.wait(SECONDS)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=SECONDS)
        goes_on.set()
    assert json.loads(out)["cost_usd"] is None
    assert json.loads(rlm("runs", "--json", **state).stdout)[0]["cost_usd"] is None


def test_only_the_owner_can_read_a_recorded_run(tmp_path: Path) -> None:
    state = tmp_path / "xdg" / "rlm"
    variables: dict[str, Any] = {"RLM_STATE_DIR": "", "XDG_STATE_HOME": str(tmp_path / "xdg")}
    done = rlm("ask", QUESTION, "--json", stdin=TEXT, **variables)
    run_id = json.loads(done.stdout)["run_id"]
    assert f"run {run_id} ended: passages" in done.stderr
    assert "Continue with" not in done.stderr
    (file,) = Places(state).listed()
    assert file.run_id == run_id
    for each in state.rglob("*"):
        assert each.stat().st_mode & 0o077 == 0, each


@pytest.mark.heavy
@pytest.mark.parametrize(("options", "value"), [(["--no-journal"], ""), ([], "0")])
def test_nothing_is_recorded_with_the_journal_off(
    tmp_path: Path, options: list[str], value: str
) -> None:
    state = tmp_path / "state"
    done = rlm(
        *("ask", QUESTION, "--max-tokens", "25", *options),
        stdin=TEXT,
        RLM_STATE_DIR=str(state),
        RLM_JOURNAL=value,
    )
    assert (done.returncode, state.exists()) == (3, False)
    assert "Continue with" not in done.stderr


@pytest.mark.heavy
def test_an_unwritable_state_folder_is_reported_and_the_answer_still_given(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = str(tmp_path / "file" / "state")
    done = rlm("ask", QUESTION, stdin=TEXT, RLM_STATE_DIR=place)
    assert (done.returncode, "silver-dolphin is 4821." in done.stdout) == (4, True)
    (line,) = [each for each in done.stderr.splitlines() if "not journaled" in each]
    assert line.startswith(f"This run is not journaled, so it can't be resumed: {place} can't be")
    quiet = rlm("ask", QUESTION, "--quiet", "--max-tokens", "25", stdin=TEXT, RLM_STATE_DIR=place)
    assert quiet.returncode == 3
    assert quiet.stderr.startswith("Stopped early: ")
    assert quiet.stderr.count("\n") == 1


@pytest.mark.heavy
def test_after_a_limit_the_printed_command_resumes_the_run(tmp_path: Path) -> None:
    state: dict[str, Any] = {"RLM_STATE_DIR": str(tmp_path)}
    done = rlm("ask", QUESTION, "--max-tokens", "25", stdin=TEXT, **state)
    assert done.returncode == 3
    (found,) = GO_ON.findall(done.stderr)
    assert found[1] == " --max-tokens N"
    again = rlm("resume", found[0], "--max-tokens", "100000", **state)
    assert (again.returncode, "silver-dolphin is 4821." in again.stdout) == (4, True)


def test_an_error_says_how_to_resume(tmp_path: Path) -> None:
    with FakeServer([Answer(status=401, error="who are you?")], loop=True) as server:
        options = ("ask", "?", "-m", "openai-compatible/m")
        variables: dict[str, Any] = {
            "LLM_BASE_URL": server.openai_url,
            "RLM_STATE_DIR": str(tmp_path),
        }
        told = rlm(*options, **variables)
        quiet = rlm(*options, "--quiet", **variables)
    lines = told.stderr.splitlines()
    assert (told.returncode, told.stdout) == (1, "")
    assert lines[-2].startswith("Error: ")
    assert GO_ON.fullmatch(lines[-1])
    assert one_clear_line(quiet.stderr).startswith("Error: ")


def test_after_an_interrupt_the_printed_command_resumes_the_run(tmp_path: Path) -> None:
    with story(tmp_path) as told:
        process = told.ask()
        told.wait_for_replies(4)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 130
        ((run_id, more),) = GO_ON.findall(err)
        done = told.rlm("resume", run_id)
        assert (done.returncode, done.stdout, more) == (0, f"{ANSWER}\n", ""), done.stderr


@pytest.mark.heavy
def test_a_full_disk_ends_the_journal_but_not_the_answer(tmp_path: Path) -> None:
    """Simulated with a limit on file sizes: SQLite finds that nothing more fits."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    with FakeServer([Answer(reply="```repl\nprint(context)\n```")], loop=True) as server:
        done = subprocess.run(
            command("ask", QUESTION, "-m", "openai-compatible/m", "--max-steps", "1"),
            input=TEXT.encode(),
            capture_output=True,
            env=environment({"RLM_STATE_DIR": str(tmp_path), "LLM_BASE_URL": server.openai_url}),
            preexec_fn=limit,
            timeout=SECONDS,
            check=False,
        )
    told = done.stderr.decode()
    assert done.returncode == 3, told
    assert len(re.findall("is no longer writable", told)) == 1, told
    assert "Continue with" not in told
