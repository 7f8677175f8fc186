"""Add the gateway to the configuration of MCP clients, and remove it again."""

import difflib
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from rlm._util.distribution import install_command
from rlm.cli._errors import FAILED, say
from rlm.cli._jsonc import Unreadable, add_element, drop_element, drop_member, put_member, value_of
from rlm.cli._mcp_roots import named_folders, needs_unix
from rlm.errors import ConfigError

__all__ = [
    "CLIENTS",
    "OWNED",
    "Client",
    "Entry",
    "Server",
    "Wanted",
    "changed",
    "entry_for",
    "file_of",
    "install_into",
    "is_ours",
    "project_of",
]

OWNED = ("type", "command", "args", "url", "headers")
"""Members of an entry that we change; all others belong to the user."""


class Client(Struct, frozen=True, kw_only=True):
    """A program that uses MCP servers.

    `variable` is how its file refers to a variable in a header, or None; `typed` means that an
    entry names its kind; `has_url` means that an entry can contain an address.
    """

    title: str
    section: str
    project_file: str | None
    restart: str
    typed: bool = False
    has_url: bool = True
    variable: str | None = None


CLIENTS: Mapping[str, Client] = {
    "cursor": Client(
        title="Cursor",
        section="mcpServers",
        project_file=".cursor/mcp.json",
        restart="enable it in Cursor's settings, under MCP",
        variable="${{env:{name}}}",
    ),
    "vscode": Client(
        title="VS Code",
        section="servers",
        project_file=".vscode/mcp.json",
        restart="run `MCP: List Servers` in VS Code and start it",
        typed=True,
        variable="${{input:{server}-token}}",
    ),
    "claude": Client(
        title="Claude Desktop",
        section="mcpServers",
        project_file=None,
        restart="quit Claude Desktop and start it again",
        has_url=False,
    ),
    "claude-code": Client(
        title="Claude Code",
        section="mcpServers",
        project_file=".mcp.json",
        restart="restart `claude`; /mcp lists it",
        typed=True,
        variable="${{{name}}}",
    ),
    "zed": Client(
        title="Zed",
        section="context_servers",
        project_file=".zed/settings.json",
        restart="check it in Zed's settings, under AI",
    ),
}


PROJECT_MARKS = (
    (".git", ".hg", ".jj", ".cursor", ".vscode", ".zed", ".mcp.json"),
    ("pyproject.toml", "package.json", "Cargo.toml", "go.mod"),
)
"""What marks a folder as a project. Marks of the second kind may be many in one project."""


def project_of(folder: Path) -> Path | None:
    """Return the nearest folder at or above this one that is a project; a home never is."""
    home = Path.home().resolve()
    here = folder.resolve()
    above = [each for each in (here, *here.parents) if each != each.parent]
    below_home = above[: above.index(home)] if home in above else above
    for marks in PROJECT_MARKS:
        for each in below_home:
            if any((each / mark).exists() for mark in marks):
                return each
    return None


def file_of(name: str, project: Path | None, variables: Mapping[str, str] = os.environ) -> Path:
    """Return the file that a client reads: that of a project, or that of the user."""
    client = CLIENTS[name]
    if project is not None:
        if client.project_file is None:
            raise ConfigError(f"{client.title} has no projects; leave out --project")
        return project / client.project_file
    home = Path.home()
    if name == "cursor":
        return home / ".cursor" / "mcp.json"
    if name == "claude-code":
        return home / ".claude.json"
    roaming = variables.get("APPDATA", "") or str(home / "AppData" / "Roaming")
    configured = Path(variables.get("XDG_CONFIG_HOME", "") or home / ".config")
    library = home / "Library" / "Application Support"
    base = {"win32": Path(roaming), "darwin": library}.get(sys.platform, configured)
    if name == "zed":
        folder = "Zed" if sys.platform == "win32" else "zed"
        return (configured if sys.platform == "darwin" else base) / folder / "settings.json"
    if name == "vscode":
        return base / "Code" / "User" / "mcp.json"
    return base / "Claude" / "claude_desktop_config.json"


class Server(Struct, frozen=True, kw_only=True):
    """The gateway to write down: a command to start, or an address.

    `token` is the token itself, if it may be stored in the file.
    """

    name: str
    roots: tuple[str, ...] = ()
    shows_names: bool = False
    url: str | None = None
    token_env: str | None = None
    token_file: Path | None = None
    token: str | None = None


class Entry(Struct, frozen=True):
    """The members of an entry by path, and what the client must ask its user."""

    members: dict[tuple[str, ...], Any]
    inputs: tuple[dict[str, Any], ...] = ()

    @property
    def value(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for path, value in self.members.items():
            inner = made
            for part in path[:-1]:
                inner = inner.setdefault(part, {})
            inner[path[-1]] = value
        return made


def entry_for(client: Client, server: Server) -> Entry:
    """Return the entry for a server in the form of a client."""
    if server.url is None:
        arguments = [each for root in server.roots for each in ("--root", root)]
        return _command(client, [*arguments, *(["--show-names"] if server.shows_names else [])])
    needs_token = server.token_env is not None or server.token_file is not None
    if client.has_url and not needs_token:
        return _address(client, server.url, None)
    if client.has_url and server.token is not None:
        return _address(client, server.url, server.token)
    if client.has_url and client.variable is not None and server.token_file is None:
        shown = client.variable.format(name=server.token_env, server=server.name)
        asked = () if "input:" not in shown else (_question(server),)
        return Entry(_address(client, server.url, shown).members, asked)
    return _stand_in(client, server)


def _stand_in(client: Client, server: Server) -> Entry:
    """Return a local command that forwards to the remote gateway, with the stored token."""
    assert server.url is not None
    arguments = ["connect", "--url", server.url]
    if server.token_file is not None:
        arguments += ["--token-file", str(server.token_file)]
    elif server.token_env is not None:
        arguments += ["--token-env", server.token_env]
    made = _command(client, arguments)
    if server.token is not None and server.token_env is not None:
        made.members["env", server.token_env] = server.token
    return made


def _command(client: Client, arguments: list[str]) -> Entry:
    members: dict[tuple[str, ...], Any] = {("type",): "stdio"} if client.typed else {}
    members["command",] = sys.executable
    members["args",] = ["-m", "rlm", "mcp", *arguments]
    return Entry(members)


def _address(client: Client, url: str, token: str | None) -> Entry:
    members: dict[tuple[str, ...], Any] = {("type",): "http"} if client.typed else {}
    members["url",] = url
    if token is not None:
        members["headers",] = {"Authorization": f"Bearer {token}"}
    return Entry(members)


def _question(server: Server) -> dict[str, Any]:
    return {
        "type": "promptString",
        "id": f"{server.name}-token",
        "description": f"The token of the gateway ({server.token_env})",
        "password": True,
    }


LARGEST_FILE_BYTES = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class Wanted(Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    client: str
    roots: tuple[str, ...]
    url: str | None
    token_env: str | None
    token_file: Path | None
    clear_token: bool
    name: str
    project: Path | None
    everywhere: bool
    show_names: bool | None
    remove: bool
    dry_run: bool


def install_into(wanted: Wanted) -> int:
    """Write the configuration or print what to write; return the exit code."""
    client = CLIENTS[wanted.client]
    project = _project(wanted, client)
    path = file_of(wanted.client, project)
    entry = None if wanted.remove else entry_for(client, _server(wanted))
    before = _text_of(path)
    try:
        after = changed(before, client, wanted.name, entry)
    except Unreadable as problem:
        return _paste_it_yourself(path, client, wanted.name, entry, problem)
    if after == before:
        is_gone = entry is None and _configured_server(before, client, wanted.name) is None
        say(f"{path} has no {wanted.name!r}." if is_gone else f"{path} is already up to date.", 0)
        if is_gone and project is not None and not wanted.project:
            say("--global removes it from the configuration for all projects.", 0)
        return 0
    if wanted.dry_run:
        click.echo(_difference(before, after, path), nl=False)
        return 0
    kept = write(path, before, after)
    aside = "" if kept is None else f"; its previous content is in {kept}"
    if entry is None:
        say(f"Removed the gateway from {path}{aside}.", 0)
        return 0
    say(f"Added the gateway to {path}{aside}.", 0)
    for line in _told(wanted, client, project):
        say(line, 0)
    if wanted.url is None and importlib.util.find_spec("mcp") is None:
        say(f"The gateway will not start until you run: {install_command('mcp')}", 0)
    say(f"Next: {client.restart}; `rlm mcp doctor` checks it.", 0)
    return 0


def _project(wanted: Wanted, client: Client) -> Path | None:
    """Return the project to write to; None for the configuration for all projects."""
    if wanted.project is not None or wanted.everywhere or client.project_file is None:
        return wanted.project
    found = project_of(Path.cwd())
    if found is not None and wanted.clear_token:
        raise ConfigError(
            f"--clear-token would write the token into a file of the project {found}, which others "
            "may get: add --global, or use --token-file"
        )
    return found


def _told(wanted: Wanted, client: Client, project: Path | None) -> Iterator[str]:
    """Yield what the entry means: what it opens, and where."""
    for name, folder in named_folders(wanted.roots).items() if wanted.roots else ():
        shown = "hides" if wanted.show_names is False else "shows"
        yield f"It opens {folder.resolve()} as {name!r}, and {shown} the names of files."
    if project is None and client.project_file is not None:
        yield (
            f"{client.title} will open it in all of its projects; "
            "--project DIRECTORY writes it for one project only."
        )
    elif project is not None:
        yield (
            f"{client.title} will open it in this project only; --global writes it for all. The "
            "file contains paths of this machine: check it before you commit it."
        )


def changed(text: str, client: Client, name: str, entry: Entry | None) -> str:
    """Return the file's text with the entry, or without it if the entry is None."""
    if entry is None:
        text = drop_element(text, ("inputs",), "id", f"{name}-token") if client.typed else text
        return drop_member(text, (client.section, name))
    held = _configured_server(text, client, name)
    if held is not None and not _may_be_replaced(held):
        raise ConfigError(
            f"{client.title} has another server called {name!r}; choose another name with --name"
        )
    if held is None:
        text = put_member(text, (client.section, name), entry.value)
    else:
        kept = {path[0] for path in entry.members}
        for member in OWNED:
            if member not in kept:
                text = drop_member(text, (client.section, name, member))
        for path, value in entry.members.items():
            text = put_member(text, (client.section, name, *path), value)
    for question in entry.inputs:
        known = value_of(text).get("inputs", [])
        if not any(isinstance(each, dict) and each.get("id") == question["id"] for each in known):
            text = add_element(text, ("inputs",), question)
    return text


def is_ours(entry: Any) -> bool:
    """Return whether a client's entry starts `rlm mcp`."""
    arguments = entry.get("args") if isinstance(entry, dict) else None
    if not isinstance(arguments, list):
        return False
    if arguments[:3] == ["-m", "rlm", "mcp"]:
        return True
    return arguments[:1] == ["mcp"] and Path(str(entry.get("command"))).stem == "rlm"


def _may_be_replaced(entry: Any) -> bool:
    """Return whether an entry is ours, or only names an address as ours would."""
    if is_ours(entry):
        return True
    if not isinstance(entry, dict) or "command" in entry:
        return False
    return not entry.keys() - {*OWNED, "env", "disabled"} or str(entry.get("url")).endswith("/mcp")


def _configured_server(text: str, client: Client, name: str) -> Any:
    section = value_of(text)
    section = section.get(client.section, {}) if isinstance(section, dict) else {}
    return section.get(name) if isinstance(section, dict) else None


def _server(wanted: Wanted) -> Server:
    """Return the server with absolute paths: a client starts it in any folder."""
    if wanted.roots:
        needs_unix()
    if not _NAME.fullmatch(wanted.name):
        raise click.UsageError(f"--name {wanted.name!r}: use only letters, digits, - and _")
    if wanted.token_env is not None and not _VARIABLE.fullmatch(wanted.token_env):
        raise click.UsageError("--token-env takes the name of a variable, not a token")
    if (wanted.token_env or wanted.token_file) and not wanted.url:
        raise click.UsageError("a token is only for a gateway elsewhere: give --url")
    if wanted.token_env and wanted.token_file:
        raise click.UsageError("--token-env cannot be combined with --token-file")
    token = _clear_token(wanted) if wanted.clear_token else None
    if wanted.url and not wanted.url.startswith(("http://", "https://")):
        raise click.UsageError(f"--url {wanted.url!r} is not an address such as https://HOST/mcp")
    folders = named_folders(wanted.roots) if wanted.roots else {}
    for name, folder in folders.items():
        if not folder.is_dir():
            raise ConfigError(f"the root {name!r} is not a folder: {folder}")
    return Server(
        name=wanted.name,
        roots=tuple(f"{name}={folder.resolve()}" for name, folder in folders.items()),
        shows_names=wanted.show_names is not False,
        url=wanted.url,
        token_env=wanted.token_env,
        token_file=None if wanted.token_file is None else wanted.token_file.absolute(),
        token=token,
    )


def _clear_token(wanted: Wanted) -> str:
    token = os.environ.get(wanted.token_env or "", "").strip()
    if not token:
        raise ConfigError("--clear-token needs --token-env, and a token in that variable")
    return token


# -- files -----------------------------------------------------------------------------------------


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise ConfigError(f"{path} is too large to be a client's configuration")
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text; nothing was changed") from error


def write(path: Path, before: str, after: str) -> Path | None:
    """Replace the file atomically, and return where the old text is kept."""
    target = path.resolve()  # keep a symbolic link
    target.parent.mkdir(parents=True, exist_ok=True)
    kept = None
    if target.exists():
        kept = _free_name(target)
        shutil.copy2(target, kept)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    made = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
        if kept is not None:
            shutil.copymode(target, made)
        if _text_of(target) != before:
            raise ConfigError(f"another program has changed {path} in the meantime; try again")
        made.replace(target)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    return kept


def _free_name(path: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    number = 0
    while True:
        kept = path.with_name(f"{path.name}.before-rlm-{stamp}{f'-{number}' if number else ''}")
        if not kept.exists():
            return kept
        number += 1


def _difference(before: str, after: str, path: Path) -> str:
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    found = difflib.unified_diff(old, new, str(path), f"{path} (new)")
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in found)


def _paste_it_yourself(
    path: Path, client: Client, name: str, entry: Entry | None, problem: Unreadable
) -> int:
    say(f"{path} cannot be edited safely ({problem}); nothing was changed.")
    if entry is None:
        return say(f'Remove "{name}" from "{client.section}" by hand.', FAILED)
    say("Add this by hand:")
    wanted: dict[str, Any] = {client.section: {name: entry.value}}
    if entry.inputs:
        wanted["inputs"] = list(entry.inputs)
    click.echo(json.dumps(wanted, indent=2))
    return FAILED
