"""The memory of an agent: the conversation, and values by name. Plain data, saved as JSON."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from rlm._util.atomic import replacing
from rlm.errors import ConfigError

__all__ = ["AgentContext"]

FORMAT = 1
MAX_MESSAGES = 100
ROLES = ("user", "assistant")


class _Message(Struct, forbid_unknown_fields=True):
    role: str
    content: str


class _File(Struct, forbid_unknown_fields=True):
    agent_id: str
    max_history_size: int
    history: list[_Message]
    context_data: dict[str, Any]
    tools: list[str] = field(default_factory=list)
    format: int = FORMAT


class _KitMessage(Struct):
    role: str
    content: str


class _KitFile(Struct):
    """A file of rlm-kit: messages also have times, and the names of tools stand beside them."""

    agent_id: str
    conversation_history: list[_KitMessage]
    context_data: dict[str, Any]
    tools: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)

    def as_ours(self) -> _File:
        messages = [_Message(each.role, each.content) for each in self.conversation_history]
        known = [each for each in messages if each.role in ROLES]
        return _File(self.agent_id, MAX_MESSAGES, known, self.context_data, self.tools)


class AgentContext:
    """The memory of one agent; only the last `max_history_size` messages are kept.

    `tools` are functions by name, which the agent grants from its next turn on.
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
        self.history: list[dict[str, str]] = []
        self.data: dict[str, Any] = {}
        self.tools: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}

    @property
    def conversation_history(self) -> list[dict[str, str]]:
        """The same list as `history`, under rlm-kit's name."""
        return self.history

    @conversation_history.setter
    def conversation_history(self, messages: list[dict[str, str]]) -> None:
        self.history = messages

    @property
    def context_data(self) -> dict[str, Any]:
        """The same dict as `data`, under rlm-kit's name."""
        return self.data

    @context_data.setter
    def context_data(self, data: dict[str, Any]) -> None:
        self.data = data

    def add_message(self, role: str, content: str, metadata: dict[str, Any] | None = None) -> None:
        """Add a message of "user" or "assistant"; `metadata` is not kept."""
        if role not in ROLES:
            raise ConfigError(f"a role is one of {', '.join(ROLES)}, not {role!r}")
        self.history.append({"role": role, "content": content})
        del self.history[: max(0, len(self.history) - self.max_history_size)]

    def add(self, key: str, value: Any) -> None:
        """Store a JSON value under a name, replacing any other."""
        if not isinstance(key, str):
            raise ConfigError(f"a key must be a string, not {key!r}")
        try:
            self.data[key] = json.loads(json.dumps(value))
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"{key!r} has no JSON form ({error}); give the agent plain values, or a function "
                "as a tool"
            ) from error

    def add_context(self, key: str, data: Any) -> None:
        """The same as `add`, under rlm-kit's name."""
        self.add(key, data)

    def register_tool(self, name: str, function: Any) -> None:
        """Let the agent's cells call a function from its next turn on."""
        if not isinstance(name, str) or not name:
            raise ConfigError(f"the name of a tool must be a string, not {name!r}")
        self.tools[name] = function

    def get_recent_history(self, limit: int = 10) -> list[dict[str, str]]:
        """Return the last messages, oldest first; all of them if `limit` is 0."""
        return [dict(message) for message in self.history[-max(0, limit) :]]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data in rlm-kit's shape; of tools, the names."""
        return {
            "agent_id": self.agent_id,
            "conversation_history": [dict(message) for message in self.history],
            "context_data": dict(self.data),
            "tools": list(self.tools),
            "metadata": dict(self.metadata),
        }

    def turns(self) -> list[dict[str, str]]:
        """Return the conversation as queries and answers; a query that was dropped is empty."""
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
        messages = [_Message(**each) for each in self.history]
        whole = _File(self.agent_id, self.max_history_size, messages, self.data, list(tools))
        text = json.dumps(msgspec.to_builtins(whole), indent=2)  # ASCII: any text survives
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
            kit = msgspec.convert(value, _KitFile) if is_kit else None
            whole = msgspec.convert(value, _File) if kit is None else kit.as_ours()
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} does not hold an agent's memory: {error}") from error
        if whole.format != FORMAT:
            raise ConfigError(f"{path} has format {whole.format}; this version reads {FORMAT}")
        found = cls(whole.agent_id, whole.max_history_size)
        for message in whole.history:
            found.add_message(message.role, message.content)
        found.data = whole.context_data
        found.metadata = {} if kit is None else kit.metadata
        return found, tuple(whole.tools)
