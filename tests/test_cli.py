"""The command line as a user runs it: a real process, the answer on stdout, the rest on stderr."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = "Nothing here.\nThe access code for silver-dolphin is 4821.\nNothing there.\n"
QUESTION = "What is the access code for silver-dolphin?"


def rlm(
    *arguments: str, stdin: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    keep = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "rlm", *arguments],
        input=stdin if stdin is not None else "",
        capture_output=True,
        text=True,
        env={**keep, **variables},
        timeout=120,
        check=False,
    )


def test_version_and_help() -> None:
    assert rlm("--version").stdout.startswith("rlm, version 0.")
    assert "QUERY" in rlm("ask", "--help").stdout


def test_a_question_about_a_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(TEXT)
    done = rlm("ask", QUESTION, "-f", str(tmp_path / "notes.txt"))
    assert done.returncode == 0
    assert "4821" in done.stdout
    assert len(done.stdout.strip().splitlines()) == 1
    assert "not a language model" in done.stderr
    assert "step 1" in done.stderr


def test_a_question_about_what_is_piped_in_as_json() -> None:
    done = rlm("ask", QUESTION, "--json", "--quiet", stdin=TEXT)
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert "4821" in result["answer"]
    assert (result["stop_reason"], result["model"]) == ("answer", "offline/extractive")


def test_several_files_are_a_dict_by_name(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(TEXT if name == "b.txt" else "Nothing at all.\n")
    done = rlm("ask", QUESTION, "-f", str(tmp_path / "a.txt"), "-f", str(tmp_path / "b.txt"))
    assert "4821" in done.stdout


def test_a_limit_reached_has_its_own_exit_code() -> None:
    done = rlm("ask", QUESTION, "--max-tokens", "25", stdin=TEXT)
    assert done.returncode == 3
    assert "Stopped early" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "told"),
    [
        (["-m", "nowhere/x"], {}, "there is no provider 'nowhere'"),
        (["-m", "openai/gpt-5"], {}, "set OPENAI_API_KEY"),
        (["-f", "missing.txt"], {}, "missing.txt"),
        (["--max-steps", "-1"], {}, "max_steps must be a positive whole number"),
        (
            ["-m", "openai-compatible/m"],
            {"LLM_BASE_URL": "http://127.0.0.1:9/v1"},
            "127.0.0.1:9",
        ),
    ],
)
def test_mistakes_are_one_line_on_stderr(
    arguments: list[str], variables: dict[str, str], told: str
) -> None:
    done = rlm("ask", QUESTION, "--quiet", *arguments, stdin=TEXT, **variables)
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
