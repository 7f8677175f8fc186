"""Sessions on disk: a saved chat, and beside it what an editor has to know about it."""

import json
import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from acp import RequestError
from msgspec import Struct, field

from recursivelm_acp.folder import State

__all__ = ["Saved", "SessionStore"]

MAX_SESSIONS = 50
MAX_BYTES = 2 << 30
MAX_CONTEXT_BYTES = 256 << 20
"""Sessions with larger contexts are not saved, because each prompt would write all of it."""

_ID = re.compile(r"[0-9a-f]{32}")


class Saved(Struct, frozen=True):
    """What is known about a session besides its chat."""

    session_id: str
    cwd: str
    title: str = ""
    updated: float = 0.0
    files: State = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    """What the user wrote, by the number of the turn; the chat also has notes about files."""

    @property
    def updated_at(self) -> str:
        return datetime.fromtimestamp(self.updated, UTC).isoformat(timespec="seconds")


class SessionStore:
    """A folder that only its owner can read; without one, nothing is saved."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @property
    def is_on(self) -> bool:
        return self._folder is not None

    def chat_path(self, session_id: str) -> Path:
        """Return where the chat of a session is, or would be."""
        if self._folder is None or not _ID.fullmatch(session_id):
            raise _unknown(session_id)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder / f"{session_id}.rlm"

    def note(self, saved: Saved) -> None:
        """Write what is known about a session whose chat was just saved."""
        path = self.chat_path(saved.session_id).with_suffix(".json")
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps(msgspec.to_builtins(saved)), "ascii")
        partial.replace(path)
        self._make_room()

    def find(self, session_id: str) -> Saved:
        """Return a session that was saved."""
        path = self.chat_path(session_id)
        found = _read(path.with_suffix(".json")) if path.is_file() else None
        if found is None or found.session_id != session_id:
            raise _unknown(session_id)
        return found

    def listed(self) -> Iterator[Saved]:
        """Yield all saved sessions, newest first."""
        paths = [] if self._folder is None else list(self._folder.glob("*.json"))
        found = [each for each in map(_read, paths) if each is not None]
        yield from sorted(found, key=lambda each: each.updated, reverse=True)

    def _make_room(self) -> None:
        size = 0
        for number, each in enumerate(self.listed(), 1):
            path = self.chat_path(each.session_id)
            size += path.stat().st_size if path.exists() else 0
            if number > MAX_SESSIONS or size > MAX_BYTES:
                path.unlink(missing_ok=True)
                path.with_suffix(".json").unlink(missing_ok=True)


def _read(path: Path) -> Saved | None:
    """Return what a file holds; None if it is damaged or belongs to something else."""
    try:
        value: Any = json.loads(path.read_text("utf-8"))
        found = msgspec.convert(value, Saved)
    except (OSError, ValueError, RecursionError, msgspec.ValidationError):
        return None
    is_sound = _ID.fullmatch(found.session_id) and 0 <= found.updated <= time.time() + 86_400
    return found if is_sound and path.stem == found.session_id else None


def _unknown(session_id: str) -> RequestError:
    return RequestError(-32002, f"unknown session {session_id[:100]!r}: session/new begins one")
