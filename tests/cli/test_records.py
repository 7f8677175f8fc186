"""How runs are named and found, where they are recorded, and what a shell completes."""

import os
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm.cli._records import find_recorded, newest_first, short_id, where_to_journal
from rlm.errors import ConfigError
from rlm.records.journal import Places, RunFile
from tests.cli import kept
from tests.cli.conftest import Run
from tests.cli.running import rlm
from tests.cli.scripts import HOSTILE

IDS = (
    "20261115-120000-000-aaaaaaaa",
    "20261115-120001-000-bbbbbbbb",
    "20261115-120001-001-ccbbbbbb",
    "my-run",
)


@pytest.fixture
def runs(state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Places:
    """Files that look like journals: nothing here opens them."""
    (state / "runs").mkdir(parents=True)
    for number, each in enumerate(IDS):
        file = state / "runs" / f"{each}.sqlite"
        file.touch()
        os.utime(file, (number, number))
    monkeypatch.setenv("RLM_STATE_DIR", str(state))
    monkeypatch.chdir(tmp_path)
    return Places(state)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (IDS[0], IDS[0]),
        ("aaaaaaaa", IDS[0]),
        ("20261115-120000", IDS[0]),
        ("last", IDS[2]),
        ("my", "my-run"),
        ("ccbbbbbb", IDS[2]),
    ],
)
def test_a_run_is_found_by_the_end_of_its_id(runs: Places, name: str, found: str) -> None:
    recorded = find_recorded(name)
    assert (recorded.run_id, recorded.path) == (found, runs.runs / f"{found}.sqlite")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("20261115", "several runs are called '20261115'"),
        ("nobody", "no run is called 'nobody'"),
        (f"{IDS[0]}-0123456789x", "no run is called"),
        ("", "there is nothing"),
    ],
)
def test_an_ambiguous_or_unknown_run_is_reported(
    runs: Places, run: Run, name: str, told: str
) -> None:
    code, _, err = run("show", name)
    assert code == 1
    assert told in err or "is not a file" in err or "no log in" in err


def test_child_runs_and_paths_can_be_named_too(runs: Places, tmp_path: Path) -> None:
    child = f"{IDS[0]}-0123456789"
    assert find_recorded(child)[:2] == (runs.runs / f"{IDS[0]}.sqlite", child)
    (tmp_path / "logs").mkdir()
    assert find_recorded("logs") == (Path("logs"), None, None)
    assert find_recorded("./aaaaaaaa").path == Path("aaaaaaaa")
    (tmp_path / "last").mkdir()
    assert find_recorded("last").run_id == IDS[2]
    assert find_recorded("./last").path == Path("last")


def test_runs_are_sorted_by_their_start(runs: Places) -> None:
    assert [each.run_id for each in newest_first(runs)] == [IDS[2], IDS[1], IDS[0], "my-run"]


def test_displayed_short_ids_can_be_used_to_find_runs(runs: Places) -> None:
    files = newest_first(runs)
    assert [short_id(each, files) for each in IDS] == ["aaaaaaaa", "bbbbbbbb", "ccbbbbbb", "my-run"]
    twin = RunFile("bbbbbbbb", Path(), 0.0, 0)
    assert short_id(IDS[1], [*files, twin]) == IDS[1]
    for each in IDS:
        assert find_recorded(short_id(each, files)).run_id == each


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text() | st.text("./-" + string.ascii_letters + string.digits))
def test_any_word_names_a_run_or_path_or_gives_a_clear_error(runs: Places, name: str) -> None:
    try:
        found = find_recorded(name)
    except ConfigError:
        return
    assert found.run is None or runs.runs in found.path.parents


# -- where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["0", "no", "OFF", " false "])
def test_journaling_can_be_disabled(runs: Places, value: str) -> None:
    assert where_to_journal({"RLM_JOURNAL": value}, wanted=True) == (None, "")
    assert where_to_journal({}, wanted=False) == (None, "")
    assert where_to_journal({"RLM_JOURNAL": ""}, wanted=True) == (runs.root, "")
    assert where_to_journal({"RLM_JOURNAL": "1"}, wanted=True) == (runs.root, "")


def test_a_dotenv_cannot_change_where_runs_are_recorded(runs: Places, tmp_path: Path) -> None:
    elsewhere = {"RLM_STATE_DIR": str(tmp_path / "elsewhere")}
    assert where_to_journal(elsewhere, wanted=True)[0] == runs.root
    assert not (tmp_path / "elsewhere").exists()


def test_an_unwritable_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RLM_STATE_DIR", str(tmp_path / "file" / "below"))
    folder, problem = where_to_journal({}, wanted=True)
    assert folder is None
    assert "Not a directory; set RLM_STATE_DIR" in problem
    monkeypatch.setenv("RLM_STATE_DIR", "~nobody-of-that-name/x")
    assert "there is no folder to keep runs in" in where_to_journal({}, wanted=True)[1]


# -- completion -----------------------------------------------------------------------------------


def proposed(state: Path, words: str) -> list[str]:
    count = str(len(words.split()) - (0 if words.endswith(" ") else 1))
    done = rlm(
        _RLM_COMPLETE="zsh_complete",
        COMP_WORDS=words,
        COMP_CWORD=count,
        RLM_STATE_DIR=str(state),
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.heavy
def test_shell_completion_proposes_runs(state: Path) -> None:
    kept.scripted(state, "FINAL(1)", query=HOSTILE)
    kept.limited(state, "20201115-120000-000-aaaaaaaa")
    kinds, values, helps = (proposed(state, "rlm resume ")[start::3] for start in range(3))
    assert set(kinds) == {"plain"}
    assert [values[0], *values[2:]] == ["last", "aaaaaaaa"]
    assert helps[2] == f"limit: {kept.QUESTION}"
    assert "\\x1b]0;pwned" in helps[1]
    assert proposed(state, "rlm rm aaaaaaa")[1::3] == ["aaaaaaaa"]
    assert proposed(state, "rlm fork 2020")[1::3] == ["20201115-120000-000-aaaaaaaa"]
    assert proposed(state, "rlm show la")[:4] == ["plain", "last", "the newest run", "file"]
    assert proposed(state / "nowhere", "rlm export aa")[0::3] == ["file"]
