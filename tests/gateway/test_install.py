"""`rlm mcp install`: each client's real file, changed only where it is ours."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rlm.cli._jsonc import value_of
from rlm.cli._mcp_install import CLIENTS, Server, changed, entry_for, file_of, project_of, write
from rlm.errors import ConfigError
from tests.cli.conftest import Run

NAMES = [*CLIENTS]
USER_FILES = {
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "claude": ".config/Claude/claude_desktop_config.json",
    "claude-code": ".claude.json",
    "zed": ".config/zed/settings.json",
}
SECTIONS = {
    "cursor": "mcpServers",
    "vscode": "servers",
    "claude": "mcpServers",
    "claude-code": "mcpServers",
    "zed": "context_servers",
}
URL = "https://files.example/mcp"
SECRET = "very-secret-0123456789"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("GATEWAY_TOKEN", SECRET)
    return tmp_path


def held(path: Path) -> Any:
    return value_of(path.read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_install_writes_the_command_to_each_clients_file(run: Run, home: Path, name: str) -> None:
    code, out, err = run("mcp", "install", "--client", name, "--root", f"code={home}")
    assert (code, out) == (0, ""), err
    entry = held(home / USER_FILES[name])[SECTIONS[name]]["rlm"]
    assert entry["command"] == sys.executable
    assert entry["args"] == ["-m", "rlm", "mcp", "--root", f"code={home}", "--show-names"]
    assert entry.get("type") == ("stdio" if name in ("vscode", "claude-code") else None)


@pytest.mark.parametrize("name", NAMES)
def test_a_token_is_not_written_in_clear_text(run: Run, home: Path, name: str) -> None:
    given = ("--client", name, "--url", URL, "--token-env", "GATEWAY_TOKEN")
    code, _, err = run("mcp", "install", *given)
    assert code == 0, err
    path = home / USER_FILES[name]
    assert SECRET not in path.read_text("utf-8") + err
    file = held(path)
    entry = file[SECTIONS[name]]["rlm"]
    if name in ("claude", "zed"):  # these expand nothing: a command here gets the token
        connect = ["connect", "--url", URL, "--token-env", "GATEWAY_TOKEN"]
        assert entry["args"][3:] == connect
        assert "url" not in entry
        return
    assert entry["url"] == URL
    shown = {
        "cursor": "Bearer ${env:GATEWAY_TOKEN}",
        "vscode": "Bearer ${input:rlm-token}",
        "claude-code": "Bearer ${GATEWAY_TOKEN}",
    }
    assert entry["headers"] == {"Authorization": shown[name]}
    if name == "vscode":
        (question,) = file["inputs"]
        assert (question["id"], question["password"]) == ("rlm-token", True)


@pytest.mark.parametrize("name", NAMES)
def test_a_token_is_written_in_clear_text_only_on_request(
    run: Run,
    home: Path,
    name: str,
) -> None:
    given = ("--client", name, "--url", URL, "--token-env", "GATEWAY_TOKEN", "--clear-token")
    assert run("mcp", "install", *given)[0] == 0
    entry = held(home / USER_FILES[name])[SECTIONS[name]]["rlm"]
    if name == "claude":
        assert entry["env"] == {"GATEWAY_TOKEN": SECRET}
    else:
        assert entry["headers"] == {"Authorization": f"Bearer {SECRET}"}


@pytest.mark.parametrize("name", NAMES)
def test_install_can_refer_to_a_token_file(run: Run, home: Path, name: str) -> None:
    given = ("--client", name, "--url", URL, "--token-file", "secret")
    assert run("mcp", "install", *given)[0] == 0
    entry = held(home / USER_FILES[name])[SECTIONS[name]]["rlm"]
    assert entry["args"][-2:] == ["--token-file", str(home / "secret")]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "claude"])
def test_install_can_write_to_a_projects_file(run: Run, home: Path, name: str) -> None:
    assert run("mcp", "install", "--client", name, "--url", URL, "--project", ".")[0] == 0
    path = home / (CLIENTS[name].project_file or "")
    assert held(path)[SECTIONS[name]]["rlm"]["url"] == URL


@pytest.mark.parametrize("name", NAMES)
def test_install_says_when_all_projects_are_affected(run: Run, home: Path, name: str) -> None:
    words = "will open it in all of its projects; --project DIRECTORY writes it for one"
    _, _, err = run("mcp", "install", "--client", name, "--root", ".")
    assert (words in err) == (name != "claude")  # which has no projects
    if name != "claude":
        _, _, err = run("mcp", "install", "--client", name, "--root", ".", "--project", ".")
        assert words not in err


# -- the project of the current folder -------------------------------------------------------------


@pytest.fixture
def away(
    home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A home that is not the folder in which commands run."""
    made = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(made))
    return made


@pytest.fixture
def project(away: Path, tmp_path: Path) -> Path:
    """A project, in which commands run."""
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_inside_a_project_install_writes_for_that_project(
    run: Run, away: Path, project: Path, name: str
) -> None:
    code, _, err = run("mcp", "install", "--client", name, "--root", "web=.")
    assert code == 0, err
    file = CLIENTS[name].project_file
    path = away / USER_FILES[name] if file is None else project / file
    entry = held(path)[SECTIONS[name]]["rlm"]
    root = project
    assert entry["args"][3:] == ["--root", f"web={root}", "--show-names"]
    assert f"Added the gateway to {path}." in err
    assert f"It opens {root} as 'web', and shows the names of files." in err
    assert ("in this project only; --global writes it for all" in err) == (file is not None)
    assert (away / USER_FILES[name]).exists() == (file is None)


@pytest.mark.parametrize("name", NAMES)
def test_inside_a_project_install_can_write_globally(
    run: Run, away: Path, project: Path, name: str
) -> None:
    code, _, err = run("mcp", "install", "--client", name, "--root", "web=.", "--global")
    assert code == 0, err
    assert "rlm" in held(away / USER_FILES[name])[SECTIONS[name]]
    assert [path.name for path in project.iterdir()] == [".git"]


def test_names_can_be_hidden(run: Run, away: Path, project: Path) -> None:
    given = ("mcp", "install", "--client", "cursor", "--root", "web=.")
    _, _, err = run(*given, "--hide-names")
    path = project / ".cursor" / "mcp.json"
    assert held(path)["mcpServers"]["rlm"]["args"][-1].startswith("web=")
    assert "hides the names of files" in err
    assert run(*given)[0] == 0
    assert held(path)["mcpServers"]["rlm"]["args"][-1] == "--show-names"


def test_a_project_file_keeps_its_comments_and_other_servers(
    run: Run, away: Path, project: Path
) -> None:
    path = project / ".vscode" / "mcp.json"
    path.parent.mkdir()
    path.write_text('{\n  // ours\n  "servers": {"other": {"url": "x"}},\n}\n', "utf-8")
    assert run("mcp", "install", "--client", "vscode", "--root", ".")[0] == 0
    text = path.read_text("utf-8")
    assert text.startswith("{\n  // ours\n")
    assert [*held(path)["servers"]] == ["other", "rlm"]
    assert run("mcp", "install", "--client", "vscode", "--remove")[0] == 0
    assert [*held(path)["servers"]] == ["other"]


def test_removing_from_the_wrong_file_says_where_to_look(
    run: Run, away: Path, project: Path
) -> None:
    given = ("mcp", "install", "--client", "cursor")
    assert run(*given, "--root", ".", "--global")[0] == 0
    code, _, err = run(*given, "--remove")
    assert (code, "has no 'rlm'" in err, "--global removes it" in err) == (0, True, True)
    assert run(*given, "--remove", "--global")[0] == 0
    assert held(away / USER_FILES["cursor"]) == {"mcpServers": {}}


def test_a_clear_text_token_is_not_written_to_a_project_by_default(
    run: Run, away: Path, project: Path
) -> None:
    given = ("mcp", "install", "--client", "cursor", "--url", URL, "--token-env", "GATEWAY_TOKEN")
    code, _, err = run(*given, "--clear-token")
    assert code == 1
    assert "add --global, or use --token-file" in err
    assert not (project / ".cursor").exists()
    assert run(*given, "--clear-token", "--global")[0] == 0


@pytest.mark.parametrize(
    ("marks", "here", "found"),
    [
        (["a/.git"], "a/b/c", "a"),
        (["a/.git", "a/b/package.json"], "a/b", "a"),
        (["a/pyproject.toml", "a/b/package.json"], "a/b/c", "a/b"),
        (["a/.git", "a/b/.vscode"], "a/b/c", "a/b"),
        ([".git", ".cursor"], "a/b", None),  # in the home itself
        ([], "a", None),
    ],
)
def test_a_project_is_recognised_by_its_marker_files(
    home: Path, marks: list[str], here: str, found: str | None
) -> None:
    for mark in marks:
        (home / mark).mkdir(parents=True)
    (home / here).mkdir(parents=True, exist_ok=True)
    assert project_of(home / here) == (None if found is None else home / found)


def test_claude_desktop_has_no_project_files(run: Run, home: Path) -> None:
    code, _, err = run("mcp", "install", "--client", "claude", "--url", URL, "--project", ".")
    assert code == 1
    assert "leave out --project" in err


@pytest.mark.parametrize(
    ("platform", "name", "file"),
    [
        ("darwin", "claude", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("darwin", "vscode", "Library/Application Support/Code/User/mcp.json"),
        ("darwin", "zed", ".config/zed/settings.json"),
        ("darwin", "cursor", ".cursor/mcp.json"),
        ("win32", "claude", "Roaming/Claude/claude_desktop_config.json"),
        ("win32", "vscode", "Roaming/Code/User/mcp.json"),
        ("win32", "zed", "Roaming/Zed/settings.json"),
    ],
)
def test_paths_on_other_systems(
    home: Path, monkeypatch: pytest.MonkeyPatch, platform: str, name: str, file: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert file_of(name, None, {"APPDATA": str(home / "Roaming")}) == home / file


OTHERS = """// mine
{
\t"theme": "dark", // do not touch
\t"mcpServers": {
\t\t"github": {"command": "gh-mcp", "env": {"KEY": "x"}},
\t},
\t"numbers": 1e3,
}
"""


def test_other_entries_are_kept_and_a_backup_is_made(run: Run, home: Path) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(OTHERS, "utf-8")
    path.chmod(0o640)
    code, _, err = run("mcp", "install", "--client", "cursor", "--url", URL)
    assert code == 0
    (kept,) = path.parent.glob("*.before-rlm-*")
    assert kept.name in err
    assert kept.read_text("utf-8") == OTHERS
    assert path.stat().st_mode & 0o777 == 0o640
    added = '\n\t\t"rlm": {\n\t\t\t"url": "https://files.example/mcp"\n\t\t},'
    assert path.read_text("utf-8") == OTHERS.replace('"x"}},', '"x"}},' + added)


def test_installing_again_changes_nothing(run: Run, home: Path) -> None:
    for name in NAMES:
        given = ("install", "--client", name, "--url", URL, "--token-env", "GATEWAY_TOKEN")
        assert run("mcp", *given)[0] == 0
        path = home / USER_FILES[name]
        first = (path.read_bytes(), path.stat().st_mtime_ns, sorted(path.parent.iterdir()))
        code, _, err = run("mcp", *given)
        assert (code, "already" in err) == (0, True)
        assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(path.parent.iterdir())) == first


def test_additions_of_the_user_to_our_entry_are_kept(home: Path) -> None:
    text = '{"mcpServers": {"rlm": {"command": "/bin/rlm", "args": ["mcp"], "disabled": true}}}'
    client = CLIENTS["cursor"]
    made = changed(text, client, "rlm", entry_for(client, Server(name="rlm", url=URL)))
    assert value_of(made)["mcpServers"]["rlm"] == {"disabled": True, "url": URL}


@pytest.mark.parametrize(
    "other",
    [
        {"command": "roblox-lm"},
        {"command": "docker", "args": ["mcp", "gateway", "run"]},
        {"command": "x", "url": URL},
        "rlm",
    ],
)
def test_an_entry_of_another_program_is_not_replaced(run: Run, home: Path, other: Any) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": {"rlm": other}}), "utf-8")
    code, _, err = run("mcp", "install", "--client", "cursor", "--url", URL)
    assert code == 1
    assert "--name" in err
    assert run("mcp", "install", "--client", "cursor", "--url", URL, "--name", "files")[0] == 0
    assert [*held(path)["mcpServers"]] == ["rlm", "files"]


@pytest.mark.parametrize("name", NAMES)
def test_the_entry_can_be_removed_again(run: Run, home: Path, name: str) -> None:
    path = home / USER_FILES[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = OTHERS.replace("mcpServers", SECTIONS[name])
    path.write_text(text, "utf-8")
    given = ("--client", name, "--url", URL, "--token-env", "GATEWAY_TOKEN")
    assert run("mcp", "install", *given)[0] == 0
    assert run("mcp", "install", "--client", name, "--remove")[0] == 0
    left = held(path)
    assert left.pop("inputs", []) == []
    assert left == value_of(text)
    assert run("mcp", "install", "--client", name, "--remove")[0] == 0


def test_a_dry_run_writes_nothing(run: Run, home: Path) -> None:
    code, out, _ = run("mcp", "install", "--client", "zed", "--url", URL, "--dry-run")
    assert code == 0
    assert '+    "rlm": {' in out
    assert not (home / ".config").exists()


def test_a_file_that_cannot_be_edited_is_left_unchanged_and_reported(run: Run, home: Path) -> None:
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text('{"mcpServers": {"a": 1} oops', "utf-8")
    code, out, err = run("mcp", "install", "--client", "cursor", "--url", URL)
    assert code == 1
    assert "cannot be edited safely (line 1: a comma is missing)" in err
    assert json.loads(out) == {"mcpServers": {"rlm": {"url": URL}}}
    assert path.read_text("utf-8") == '{"mcpServers": {"a": 1} oops'
    assert [*path.parent.iterdir()] == [path]


def test_a_symbolic_link_stays_a_link(run: Run, home: Path) -> None:
    (home / "dotfiles").mkdir()
    (home / "dotfiles" / "claude.json").write_text("{}", "utf-8")
    (home / ".claude.json").symlink_to(home / "dotfiles" / "claude.json")
    assert run("mcp", "install", "--client", "claude-code", "--url", URL)[0] == 0
    assert (home / ".claude.json").is_symlink()
    assert held(home / "dotfiles" / "claude.json")["mcpServers"]["rlm"]["type"] == "http"


def test_a_file_changed_in_the_meantime_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"new": 1}', "utf-8")
    with pytest.raises(ConfigError, match="try again"):
        write(path, "{}", '{"rlm": 1}')
    assert path.read_text("utf-8") == '{"new": 1}'
    assert not [*tmp_path.glob(".mcp*")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--root for a gateway here, or --url"),
        (["--root", ".", "--url", URL], "--root for a gateway here, or --url"),
        (["--root", "nowhere"], "is not a folder"),
        (["--root", ".", "--token-env", "X"], "give --url"),
        (["--url", "files.example"], "is not an address"),
        (["--url", URL, "--token-env", "sk-123 456"], "not a token"),
        (["--url", URL, "--token-env", "A", "--token-file", "b"], "cannot be combined"),
        (["--url", URL, "--clear-token"], "needs --token-env"),
        (["--url", URL, "--name", "a b"], "--name"),
        (["--url", URL, "--hide-names"], "to the gateway at --url"),
        (["--root", ".", "--global", "--project", "."], "cannot be combined"),
    ],
)
def test_mistakes_are_reported(run: Run, home: Path, options: list[str], words: str) -> None:
    code, _, err = run("mcp", "install", "--client", "cursor", *options)
    assert code in (1, 2)
    assert words in err
    assert not (home / ".cursor").exists()
