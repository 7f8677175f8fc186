"""Chats that are kept without anybody asking: beside the journals, so many and no more."""

import os
import secrets
import time
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from rlm.chat.file import SavedFile
from rlm.cli._border import say
from rlm.cli._listing import age
from rlm.cli._output import as_harmless_json
from rlm.cli._records import archive
from rlm.cli._table import show_table
from rlm.errors import ConfigError
from rlm.records.recorders.console import one_line

__all__ = ["ChatFolder", "show_chats"]

ENDING = ".rlm"
MOST_CHATS = 50
MOST_BYTES = 2 << 30
MOST_CONTEXT_BYTES = 256 << 20
"""Chats with larger contexts are kept only if somebody says where: each turn writes all of it."""


class KeptChat(Struct, frozen=True):
    """One file of the folder."""

    name: str
    path: Path
    changed: float
    size_bytes: int


class ChatFolder:
    """`chats` below the state folder; only its owner can look into it."""

    def __init__(self, root: Path) -> None:
        self.path = self._folder = root / "chats"
        self.history = root / "chat_history"

    def new(self) -> Path:
        """A name for a new chat; the oldest make room for it."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room()
        began = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return self._folder / f"{began}-{secrets.token_hex(3)}{ENDING}"

    def listed(self) -> list[KeptChat]:
        """All of them, the newest first."""
        found = []
        try:
            entries = list(os.scandir(self._folder))
        except FileNotFoundError:
            return []
        for entry in entries:
            if entry.name.endswith(ENDING) and entry.is_file(follow_symlinks=False):
                facts = entry.stat(follow_symlinks=False)
                name = entry.name.removesuffix(ENDING)
                found.append(KeptChat(name, Path(entry.path), facts.st_mtime, facts.st_size))
        return sorted(found, key=lambda each: (each.changed, each.name), reverse=True)

    def newest(self) -> Path:
        for each in self.listed():
            return each.path
        raise ConfigError("there is no chat to go on with; `rlm chat FILE` begins one")

    def find(self, named: str) -> Path:
        """A file, or a chat of this folder by its name or the end of it."""
        if os.path.sep in named or Path(named).exists():
            return Path(named)
        found = [each.path for each in self.listed() if each.name.endswith(named)]
        if len(found) == 1:
            return found[0]
        what = "several chats are" if found else "no file and no chat is"
        raise ConfigError(f"{what} called {named!r}; `rlm chat --list` lists them")

    def _make_room(self) -> None:
        size = 0
        for number, each in enumerate(self.listed(), 2):
            size += each.size_bytes
            if number > MOST_CHATS or size > MOST_BYTES:
                each.path.unlink(missing_ok=True)


def show_chats(*, as_json: bool) -> None:
    """What `--list` shows."""
    folder = ChatFolder(archive().places.root)
    rows = [(each, _about(each)) for each in folder.listed()]
    if as_json:
        plain = [{"chat": e.name, "path": str(e.path), **(a or {})} for e, a in rows]
        click.echo(as_harmless_json(plain))
        return
    if not rows:
        say("There is no chat yet; `rlm chat FILE` begins one.")
        return
    cells = [(each.name, age(time.time() - each.changed), *_told(facts)) for each, facts in rows]
    show_table(("chat", "age", "turns", "model", "begins with"), cells, name=4, right=2)


def _about(each: KeptChat) -> dict[str, Any] | None:
    try:
        file = SavedFile(each.path)
    except ConfigError as error:
        say(f"{each.name} is left out: {error}")
        return None
    try:
        texts = file.texts()
    except ConfigError:
        texts = []
    finally:
        file.close()
    first = texts[0][0] if texts else ""
    return {"turns": len(file.about.turns), "model": file.about.model, "query": first}


def _told(facts: dict[str, Any] | None) -> tuple[str, str, str]:
    if facts is None:
        return "?", "?", "can't be read"
    return str(facts["turns"]), facts["model"], one_line(facts["query"], 60)
