"""Run `rlm mcp doctor`: check what a client needs, then do what a client would do."""

import asyncio
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from rlm._util.distribution import install_command
from rlm._util.text import counted
from rlm.cli._jsonc import Unreadable, value_of
from rlm.cli._mcp_connect import connected, token_for
from rlm.cli._mcp_install import CLIENTS, file_of, is_ours, project_of
from rlm.cli._mcp_roots import keep_out_of, named_folders, new_record, roots_of
from rlm.data.filesystem.denial import Denials
from rlm.errors import ConfigError
from rlm.gateway.listing import list_page
from rlm.gateway.paths import Root

__all__ = ["Asked", "Finding", "examine"]

LONGEST_SECONDS = 60.0
TRIED_FILES = 5
MIN_VERSION = (2, 3)
NAME = "rlm"
"""The default name of an entry of `rlm mcp install`."""


class Asked(Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    roots: tuple[str, ...]
    url: str | None
    token_env: str | None
    token_file: Path | None
    project: Path | None
    as_json: bool


class Finding(Struct, frozen=True):
    """One row: whether it is well, what was found, and what to do."""

    what: str
    well: bool
    state: str
    to_do: str = ""


def examine(asked: Asked) -> int:
    """Run all checks, show them, and return the exit code."""
    found = list(_findings(asked))
    well = all(each.well for each in found)
    if asked.as_json:
        click.echo(json.dumps({"ok": well, "findings": msgspec.to_builtins(found)}))
    else:
        from rlm.cli._output import show_facts

        show_facts((each.what, _line(each)) for each in found)
        works = "A client can use this gateway." if well else "A client could not use it."
        show_facts([("result", works)])
    return 0 if well else 1


def _line(finding: Finding) -> str:
    mark = "ok: " if finding.well else "NOT OK: "
    return f"{mark}{finding.state}" + (f" -> {finding.to_do}" if finding.to_do else "")


def _findings(asked: Asked) -> Iterator[Finding]:
    package = _package()
    yield package
    can_start = True
    if asked.url is None:
        opened = yield from _folders(asked.roots or (".",))
        if can_start := bool(opened):
            yield _record(opened)
    yield from _clients(asked.project or project_of(Path.cwd()))
    if package.well and can_start:
        yield from asyncio.run(_as_a_client(asked))


def _package() -> Finding:
    wanted = install_command("mcp")
    try:
        version = importlib.metadata.version("mcp")
    except importlib.metadata.PackageNotFoundError:
        return Finding("package", False, "mcp is not installed", wanted)
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < MIN_VERSION:
        return Finding("package", False, f"mcp {version} is too old", wanted)
    return Finding("package", True, f"mcp {version}")


def _folders(given: tuple[str, ...]) -> Generator[Finding, None, Sequence[Root]]:
    """Report on the folders, and return them; none if one can't be opened."""
    try:
        opened = roots_of(given, Denials())
    except ConfigError as error:
        yield Finding("root", False, str(error), "give an existing folder with --root")
        return ()
    for root in opened:
        yield _folder(root)
        root.close()
    return opened


def _folder(root: Root) -> Finding:
    page = list_page(root, (), None, 200, ignored=False)
    count = f"{counted(len(page.entries), 'file')}" if page.after is None else "more than 200 files"
    if not page.entries:
        return Finding("root", False, f"{root.name}: no files to show", "see --all and --allow")
    return Finding("root", True, f"{root.name}: {count} that clients may see")


def _record(opened: Sequence[Root]) -> Finding:
    path = new_record()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        tempfile.TemporaryFile(dir=path.parent).close()
        for root in opened:
            keep_out_of([root], path, "the record")
    except OSError as error:
        state = f"can't write to {path.parent}: {error.strerror}"
        return Finding("record", False, state, "set --provenance FILE, or RLM_STATE_DIR")
    except ConfigError as error:
        return Finding("record", False, str(error), "set --provenance FILE")
    return Finding("record", True, f"a new file in {path.parent} for each gateway")


# -- clients' files --------------------------------------------------------------------------------


def _clients(project: Path | None) -> Iterator[Finding]:
    for name, client in CLIENTS.items():
        places = [file_of(name, None)]
        if project is not None and client.project_file is not None:
            places.append(file_of(name, project))
        for path in places:
            if path.is_file():
                yield from _entries(client.title, client.section, path)


def _entries(title: str, section: str, path: Path) -> Iterator[Finding]:
    try:
        held = value_of(path.read_text("utf-8"))
        servers = held.get(section, {}) if isinstance(held, dict) else {}
        ours = {name: each for name, each in servers.items() if is_ours(each) or name == NAME}
    except (Unreadable, OSError, UnicodeDecodeError, AttributeError) as error:
        yield Finding(title, False, f"{path} can't be read: {error}", "repair it")
        return
    if not ours:
        yield Finding(title, True, f"no gateway in {path}", "rlm mcp install")
    for name, entry in ours.items():
        command = entry.get("command") if isinstance(entry, dict) else None
        if command is not None and shutil.which(str(command)) is None:
            state = f"{name} in {path}: there is no command {command}"
            yield Finding(title, False, state, "run rlm mcp install again")
        else:
            yield Finding(title, True, f"{name} in {path}")


# -- a client of our own ---------------------------------------------------------------------------


async def _as_a_client(asked: Asked) -> list[Finding]:
    found: list[Finding] = []
    began = time.monotonic()
    to_do = "start it by hand to see more: rlm mcp --http" if asked.url is None else ""
    try:
        async with asyncio.timeout(LONGEST_SECONDS), _gateway(asked) as client:
            tools = (await client.list_tools()).tools
            seconds = time.monotonic() - began
            found.append(
                Finding("connection", True, f"{counted(len(tools), 'tool')} after {seconds:.1f} s")
            )
            found.append(await _session(client))
    except TimeoutError:
        found.append(
            Finding("connection", False, f"no answer within {LONGEST_SECONDS:.0f} s", to_do)
        )
    except (ConfigError, OSError) as error:
        found.append(Finding("connection", False, str(error), to_do))
    return found


@asynccontextmanager
async def _gateway(asked: Asked) -> AsyncGenerator[Any]:
    """Return the gateway at an address, or start one here."""
    if asked.url is not None:
        token = token_for(asked.url, asked.token_env, asked.token_file)
        async with connected(asked.url, token) as client:
            yield client
        return
    from mcp import Client, MCPError, StdioServerParameters, stdio_client

    with tempfile.TemporaryDirectory(prefix="rlm-doctor-") as folder:
        roots = [f"{name}={path}" for name, path in named_folders(asked.roots or (".",)).items()]
        arguments = [each for root in roots for each in ("--root", root)]
        record = ("--provenance", str(Path(folder) / "record.jsonl"))
        started = StdioServerParameters(
            command=sys.executable,
            args=["-m", "rlm", "mcp", *arguments, *record],
            env=dict(os.environ),
        )
        try:
            async with Client(stdio_client(started)) as client:
                yield client
        except* MCPError as group:
            raise ConfigError(f"the gateway ended: {group.exceptions[0]}") from group


async def _session(client: Any) -> Finding:
    """Open a session, list files, and read the first line of one."""
    begun = await client.call_tool("rlm_session_create", {})
    if begun.is_error:
        return Finding("session", False, _said(begun), "see the gateway's log")
    session = begun.structured_content["session"]
    try:
        for root in begun.structured_content["roots"]:
            listed = await client.call_tool("rlm_list", {"session": session, "root": root})
            files = [] if listed.is_error else listed.structured_content["files"]
            for file in [each for each in files if each["bytes"]][:TRIED_FILES]:
                asked = {"session": session, "handle": file["handle"], "lines": 1}
                span = await client.call_tool("rlm_read", asked)
                if not span.is_error:
                    return Finding("session", True, "opened; listed files, and read a line of one")
    finally:
        await client.call_tool("rlm_session_close", {"session": session})
    return Finding("session", False, "no file in any root could be read", "see --all and --allow")


def _said(result: Any) -> str:
    return str(getattr(result.content[0], "text", "")) if result.content else "no reason given"
