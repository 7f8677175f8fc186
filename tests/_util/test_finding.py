"""Programs and the home folder are never found in the working folder."""

import os
import sys
from pathlib import Path

import pytest

from rlm._util import finding
from rlm._util.state_folder import usual_state_folder
from rlm.calls.cache import ReplyCache
from rlm.clients.command import CommandClient
from rlm.errors import ConfigError
from rlm.settings.files import config_folder


def program(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\necho hello\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("entry", ["", ".", "bin"])
def test_a_program_in_the_working_folder_is_not_run(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program(tmp_path, "claude")
    program(tmp_path / "bin", "claude")
    monkeypatch.setenv("PATH", os.pathsep.join((entry, str(tmp_path / "nothing"))))
    assert finding.on_path("claude") is None
    with pytest.raises(
        ConfigError, match=r"only in the current folder, which is not searched: write \./"
    ):
        CommandClient.for_model("claude -p")
    assert CommandClient.for_model("./claude -p") is not None
    monkeypatch.setenv("PATH", os.pathsep.join((entry, str(tmp_path / "bin"))))
    assert finding.on_path("claude") == str(tmp_path / "bin" / "claude")


def test_windows_program_suffixes_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program(tmp_path, "claude.exe")
    found = program(tmp_path / "bin", "claude.EXE")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("PATHEXT", ".COM;.EXE")
    assert finding.on_path("claude") == str(found)
    assert finding.on_path("claude.EXE") == str(found)
    assert finding.on_path("codex") is None


def test_relative_folders_in_variables_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "somewhere")
    relative = {"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config", "HOME": "somewhere"}
    state = usual_state_folder(relative)
    assert state.is_absolute()
    assert not state.is_relative_to(tmp_path)
    assert config_folder(relative) is None
    absolute = usual_state_folder({"XDG_STATE_HOME": str(tmp_path)})
    assert absolute == tmp_path / "rlm"


def test_a_relative_folder_given_explicitly_is_resolved_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert usual_state_folder({"RLM_STATE_DIR": "runs"}) == tmp_path / "runs"
    assert ReplyCache("replies").folder == tmp_path / "replies"
