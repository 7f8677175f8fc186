"""`rlm replay` of logs: an untrusted log chooses nothing, and one line says what is missing."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, RLMLogger
from tests.cli import kept
from tests.cli.conftest import Run
from tests.cli.running import one_clear_line


@pytest.fixture
def log(state: Path, tmp_path: Path) -> Path:
    kept.offline(state, logger=RLMLogger(log_dir=tmp_path / "logs"))
    (found,) = (tmp_path / "logs").iterdir()
    return found


def change(log: Path, **settings: Any) -> None:
    """Change settings in the first event of a log."""
    first, _, rest = log.read_text().partition("\n")
    event = json.loads(first)
    event["settings"] |= settings
    log.write_text(f"{json.dumps(event)}\n{rest}")


def test_a_replay_without_differences(log: Path, run: Run) -> None:
    code, out, err = run("replay", str(log))
    assert (code, err) == (0, "")
    assert out.startswith("OK: run ")
    report = json.loads(run("replay", str(log), "--json")[1])
    assert (report["same"], report["differences"], report["answered"]) == (True, [], 2)


def test_a_log_cannot_choose_what_its_code_may_do(log: Path, run: Run, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned\n")
    evil.chmod(0o755)
    change(log, environment_kwargs={"python": str(evil), "allow_unsafe": True})
    code, out, err = run("replay", str(log))
    assert (code, out) == (1, "")
    assert "sets options of the environment (python, allow_unsafe)" in one_clear_line(err)
    assert not (tmp_path / "pwned").exists()


def test_a_context_is_found_by_its_hash_or_must_be_given(
    log: Path, run: Run, state: Path, tmp_path: Path
) -> None:
    shutil.rmtree(state / "runs")
    assert run("replay", str(log))[0] == 0
    shutil.rmtree(state)
    code, out, err = run("replay", str(log))
    assert (code, out) == (1, "")
    assert "pass it again with -f FILE" in one_clear_line(err)
    (tmp_path / "text").write_text(kept.TEXT)
    assert run("replay", str(log), "-f", "text")[0] == 0
    assert run("replay", str(log), "-f", "-", stdin=kept.TEXT.encode())[0] == 0


@pytest.mark.parametrize(
    "settings", [{"config": 3}, {"config": {"model": "x"}}, {"infos": [1]}, {"tools": "x"}]
)
def test_invalid_settings_are_reported_in_one_line(
    log: Path, run: Run, settings: dict[str, Any]
) -> None:
    change(log, **settings)
    code, out, err = run("replay", str(log))
    assert (code, out) == (1, "")
    assert "unexpected" not in one_clear_line(err)


def test_recordings_that_cannot_be_replayed(log: Path, run: Run, state: Path) -> None:
    kept.offline(state, logger=RLMLogger(log_dir=log.parent))
    code, _, err = run("replay", str(log.parent))
    assert (code, "contains 2 runs" in one_clear_line(err)) == (1, True)
    log.write_text("nothing\n")
    code, _, err = run("replay", str(log))
    assert (code, "contains no run" in one_clear_line(err)) == (1, True)


def test_a_turn_of_a_chat_is_refused_but_a_resumed_run_is_replayed(run: Run, state: Path) -> None:
    with RLM(kept.OFFLINE, journal=state) as rlm, rlm.chat(kept.TEXT) as chat:
        turn = chat.ask(kept.QUESTION)
    code, out, err = run("replay", turn.run_id)
    assert (code, out) == (1, "")
    assert f"run {turn.run_id} is a turn of a chat, which can't be replayed" in one_clear_line(err)
    stopped = kept.limited(state)
    assert run("resume", stopped.run_id, "--max-tokens", "1000000", "--max-steps", "7")[0] == 4
    code, out, err = run("replay", stopped.run_id)
    assert (code, err) == (0, "")
    assert out.startswith(f"OK: run {stopped.run_id} was replayed without a difference")
