"""The memory of an agent: the conversation, and values by name. Plain data, saved as JSON."""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from rlm._util.atomic import replacing
from rlm._util.off_loop import is_quick_json
from rlm.errors import ConfigError

__all__ = ["AgentContext"]

FORMAT = 1
MAX_MESSAGES = 100
ROLES = ("user", "assistant")

_one_note = threading.Lock()
"""Held while a note is stored, not while it is decoded."""

_MISSING: Any = object()


class _LongNote(Struct, frozen=True, eq=False):
    """A note that was not decoded yet, and the value of its key when it was made."""

    text: str
    before: Any


class _Message(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A message; in files from before `timestamp` was added, it has none."""

    role: str
    content: str
    timestamp: float | str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class _File(Struct, forbid_unknown_fields=True):
    agent_id: str
    max_history_size: int
    history: list[_Message]
    context_data: dict[str, Any]
    tools: list[str] = field(default_factory=list)
    format: int = FORMAT
    metadata: dict[str, Any] = field(default_factory=dict)


class _KitMessage(Struct):
    """A message in a file of rlm-kit; other fields are ignored."""

    role: str
    content: str
    timestamp: float | str | None = None
    metadata: dict[str, Any] | None = None


class _KitFile(Struct):
    """A file of rlm-kit, with the names of tools beside the messages."""

    agent_id: str
    conversation_history: list[_KitMessage]
    context_data: dict[str, Any]
    tools: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)

    def as_ours(self) -> _File:
        known = [
            _Message(each.role, each.content, each.timestamp, each.metadata or {})
            for each in self.conversation_history
            if each.role in ROLES
        ]
        return _File(
            self.agent_id,
            MAX_MESSAGES,
            known,
            self.context_data,
            self.tools,
            metadata=self.metadata,
        )


class AgentContext:
    """The memory of one agent; only the last `max_history_size` messages are kept.

    A message is {"role", "content", "timestamp", "metadata"}; times are seconds since 1970. `tools`
    are functions by name, which the agent grants from its next turn on.
    """

    def __init__(
        self, agent_id: str | None = "agent", max_history_size: int = MAX_MESSAGES
    ) -> None:
        agent_id = str(uuid.uuid4()) if agent_id is None else agent_id
        if not isinstance(agent_id, str) or not agent_id:
            raise ConfigError(f"agent_id must be a string, not {agent_id!r}")
        if not isinstance(max_history_size, int) or max_history_size < 0:
            raise ConfigError(f"max_history_size must be 0 or more, not {max_history_size!r}")
        self.agent_id = agent_id
        self.max_history_size = max_history_size
        self.history: list[dict[str, Any]] = []
        self._data: dict[str, Any] = {}
        self._undecoded: dict[str, _LongNote] = {}  # until `settle`, or someone looks at `data`
        self.tools: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}

    @property
    def conversation_history(self) -> list[dict[str, Any]]:
        """The same list as `history`, under rlm-kit's name."""
        return self.history

    @conversation_history.setter
    def conversation_history(self, messages: list[dict[str, Any]]) -> None:
        self.history = messages

    @property
    def data(self) -> dict[str, Any]:
        """The values by name. Long notes of a cell appear in this dict when the turn ends, or at
        once if this property is read during the turn.
        """
        for key, note in list(self._undecoded.items()):
            self._put(key, note, json.loads(note.text))
        return self._data

    @data.setter
    def data(self, data: dict[str, Any]) -> None:
        self._undecoded.clear()
        self._data = data

    def note(self, key: str, text: str) -> None:
        """Store a note of a cell, which is JSON and may be long, replacing any other value."""
        with _one_note:
            note = _LongNote(text, self._data.get(key, _MISSING))
            self._undecoded[key] = note
        if is_quick_json(text):
            self._put(key, note, json.loads(text))

    async def settle(self) -> None:
        """Store the long notes in `data`, after a thread has decoded them."""
        while waiting := dict(self._undecoded):
            values = await asyncio.to_thread(_decoded, waiting)
            for key, note in waiting.items():
                self._put(key, note, values[key])

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of `data`. Threads call this while the program may write to `data`."""
        waiting = dict(self._undecoded)  # First: a note that is stored meanwhile is in `data`.
        values = self._data.copy()
        valid = {k: note for k, note in waiting.items() if values.get(k, _MISSING) is note.before}
        return values | _decoded(valid)

    def _put(self, key: str, note: _LongNote, value: Any) -> None:
        """Store the value of a note, unless a note or the program has replaced it since."""
        with _one_note:
            if self._undecoded.get(key) is note:
                if self._data.get(key, _MISSING) is note.before:
                    self._data[key] = value
                del self._undecoded[key]

    @property
    def context_data(self) -> dict[str, Any]:
        """The same dict as `data`, under rlm-kit's name."""
        return self.data

    @context_data.setter
    def context_data(self, data: dict[str, Any]) -> None:
        self.data = data

    def add_message(self, role: str, content: str, metadata: dict[str, Any] | None = None) -> None:
        """Add a message of "user" or "assistant", sent now; `metadata` must have a JSON form."""
        if role not in ROLES:
            raise ConfigError(f"a role must be one of {', '.join(ROLES)}, not {role!r}")
        about = _as_plain("the metadata of a message", metadata or {})
        self._append(_Message(role, content, time.time(), about))

    def _append(self, message: _Message) -> None:
        """Add a message, and forget the oldest if there are too many."""
        said: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.timestamp is not None or message.metadata:
            said |= {"timestamp": message.timestamp, "metadata": message.metadata}
        self.history.append(said)
        del self.history[: max(0, len(self.history) - self.max_history_size)]

    def add(self, key: str, value: Any) -> None:
        """Store a JSON value under a name, replacing any other."""
        if not isinstance(key, str):
            raise ConfigError(f"a key must be a string, not {key!r}")
        plain = _as_plain(repr(key), value)
        with _one_note:
            self._undecoded.pop(key, None)
            self._data[key] = plain

    def add_context(self, key: str, data: Any) -> None:
        """The same as `add`, under rlm-kit's name."""
        self.add(key, data)

    def register_tool(self, name: str, function: Any) -> None:
        """Let the agent's cells call a function from its next turn on."""
        if not isinstance(name, str) or not name:
            raise ConfigError(f"the name of a tool must be a string, not {name!r}")
        self.tools[name] = function

    def get_recent_history(self, limit: int = 10) -> list[dict[str, Any]]:
        """Return the last messages, oldest first; all of them if `limit` is 0."""
        return [dict(message) for message in self.history[-max(0, limit) :]]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data in rlm-kit's shape; tools by name only."""
        return {
            "agent_id": self.agent_id,
            "conversation_history": [dict(message) for message in self.history],
            "context_data": dict(self.data),
            "tools": list(self.tools),
            "metadata": dict(self.metadata),
        }

    def turns(self) -> list[dict[str, str]]:
        """Return the conversation as queries and answers; a query that was dropped is "" here."""
        turns: list[dict[str, str]] = []
        for message in self.history:
            if message["role"] == "user":
                turns.append({"query": message["content"], "answer": ""})
            elif turns and not turns[-1]["answer"]:
                turns[-1]["answer"] = message["content"]
            else:
                turns.append({"query": "", "answer": message["content"]})
        return turns

    def save(self, path: str | Path, tools: Sequence[str] = ()) -> None:
        """Write everything to a file that only its owner can read, replacing it as a whole."""
        path = Path(path)
        messages = [_stored(each) for each in self.history]
        about = _as_plain("metadata", self.metadata)
        whole = _File(
            self.agent_id, self.max_history_size, messages, self.data, list(tools), metadata=about
        )
        text = json.dumps(msgspec.to_builtins(whole), indent=2)  # ASCII, so that any text survives
        try:
            with replacing(path) as file:
                file.write(text.encode())
        except OSError as error:
            raise ConfigError(f"the agent's memory can't be saved: {error}") from error

    @classmethod
    def load(cls, path: str | Path) -> "tuple[AgentContext, tuple[str, ...]]":
        """Read what `save` or rlm-kit wrote: the memory, and the names of the agent's tools."""
        try:
            value = json.loads(Path(path).read_text("utf-8"))
            is_kit = isinstance(value, dict) and "conversation_history" in value
            if is_kit:
                whole = msgspec.convert(value, _KitFile).as_ours()
            else:
                whole = msgspec.convert(value, _File)
        except OSError as error:
            raise ConfigError(f"{path} can't be read: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path} does not contain an agent's memory: {error}") from error
        if whole.format != FORMAT:
            raise ConfigError(f"{path} has format {whole.format}; this version reads {FORMAT}")
        found = cls(whole.agent_id, whole.max_history_size)
        for message in whole.history:
            if message.role not in ROLES:
                raise ConfigError(f"{path}: a role must be one of {', '.join(ROLES)}")
            found._append(message)
        found.data = whole.context_data
        found.metadata = whole.metadata
        return found, tuple(whole.tools)


def _decoded(notes: dict[str, _LongNote]) -> dict[str, Any]:
    return {key: json.loads(note.text) for key, note in notes.items()}


def _stored(message: dict[str, Any]) -> _Message:
    """Return a message of `history`, which programs may have written, as it is saved."""
    try:
        return msgspec.convert(message, _Message)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a message of the agent's history can't be saved: {error}") from error


def _as_plain(what: str, value: Any) -> Any:
    """Return a copy of a value in JSON form; ConfigError if it has none."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{what} can't be stored as JSON ({error}); give the agent plain values, or a function "
            "as a tool"
        ) from error
