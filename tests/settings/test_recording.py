"""Python programs are recorded only if their user says so, and never against their own word."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ScriptedClient
from rlm.cli._viewing import recording
from rlm.records.journal import Places
from rlm.settings.configuration import set_value
from rlm.settings.recording import journal_for, records_python

PROGRAM = """
from rlm import RLM, ScriptedClient
with RLM(ScriptedClient(["```repl\\nFINAL('x')\\n```"]), environment="inprocess", {options}) as rlm:
    print(rlm.ask("Why?", "text").journal_path)
"""


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("RLM_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("RLM_JOURNAL", raising=False)
    return tmp_path / "state"


def chosen(**given: Any) -> Any:
    return journal_for({"journal": None, "variables": None, **given})


def recorded(options: str = "") -> bool:
    """Whether a program of its own process is recorded."""
    code = PROGRAM.format(options=options)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip() != "None"


def test_nothing_is_recorded_by_default(folders: Path) -> None:
    assert chosen() is None
    assert not recorded()
    assert not folders.exists()


def test_the_setting_makes_programs_record_their_runs(folders: Path) -> None:
    set_value(os.environ, "journal_python", True)
    assert recorded()
    assert len(list(Places(folders).listed())) == 1
    assert not recorded("journal=False")
    assert not recorded("variables={}")
    assert len(list(Places(folders).listed())) == 1


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("On", True), ("0", False), ("no", False), ("", None)]
)
def test_the_variable_takes_precedence_over_the_setting(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: bool | None
) -> None:
    monkeypatch.setenv("RLM_JOURNAL", value)
    assert records_python(os.environ) is bool(expected)
    set_value(os.environ, "journal_python", True)
    assert records_python(os.environ) is (expected is not False)


@pytest.mark.heavy
def test_runs_are_recorded_while_a_viewer_is_open(folders: Path) -> None:
    with recording():
        assert recorded()
        with recording():  # A second one changes nothing.
            assert recorded()
    assert not recorded()
    assert len(list(Places(folders).listed())) == 2


def test_a_project_cannot_turn_recording_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rlm.toml").write_text("journal_python = true\n")
    monkeypatch.chdir(tmp_path)
    assert chosen() is None


def test_broken_settings_do_not_stop_a_program(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text("journal_python = [[[")
    assert chosen() is None
    with RLM(ScriptedClient(["```repl\nFINAL('x')\n```"]), environment="inprocess") as rlm:
        assert rlm.ask("Why?", "text").answer == "x"


def test_an_unwritable_folder_is_reported(
    folders: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RLM_JOURNAL", "1")
    folders.write_text("a file")
    assert chosen() is None
    assert "this run is not recorded" in caplog.text


def test_the_programs_own_option_takes_precedence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RLM_JOURNAL", "1")
    assert chosen() is True
    assert chosen(journal=False) is False
    assert chosen(journal=tmp_path) == tmp_path
    assert chosen(variables={}) is None
