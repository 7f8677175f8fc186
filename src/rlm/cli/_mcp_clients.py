"""Where MCP clients keep their servers, and how each of them writes one down."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from rlm.errors import ConfigError

__all__ = ["CLIENTS", "OWNED", "Client", "Entry", "Server", "entry_for", "file_of"]

OWNED = ("type", "command", "args", "url", "headers")
"""Members of an entry that are ours to change; all others in it are the user's."""


class Client(Struct, frozen=True, kw_only=True):
    """A program that uses MCP servers.

    `variable` is how its file refers to a variable in a header, None if it can't; `typed` means
    that an entry says what kind it is; `has_url`, that it can name an address at all.
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
        restart="switch it on in Cursor's settings, under MCP",
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
        restart="start `claude` anew; /mcp lists it",
        typed=True,
        variable="${{{name}}}",
    ),
    "zed": Client(
        title="Zed",
        section="context_servers",
        project_file=".zed/settings.json",
        restart="look at it in Zed's settings, under AI",
    ),
}


def file_of(name: str, project: Path | None, variables: Mapping[str, str] = os.environ) -> Path:
    """The file that a client reads: that of a project, or that of the user."""
    client = CLIENTS[name]
    if project is not None:
        if client.project_file is None:
            raise ConfigError(f"{client.title} knows no projects; leave out --project")
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
    """The gateway as it is to be written down: a command to start, or an address.

    `token` is the value itself, if it may stand in the file.
    """

    name: str
    roots: tuple[str, ...] = ()
    shows_names: bool = False
    url: str | None = None
    token_env: str | None = None
    token_file: Path | None = None
    token: str | None = None


class Entry(Struct, frozen=True):
    """Members of the entry by their path below it; and what the client has to ask its user."""

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
    """How this client writes that server down."""
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
    """A command here that asks the gateway there, and gets the token from where it is kept."""
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
