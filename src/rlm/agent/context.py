"""The memory of an agent: the conversation, and values by name. Plain data, saved as JSON."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from rlm._util.atomic import replacing
from rlm.errors import ConfigError

__all__ = ["AgentContext"]

FORMAT = 1
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


class AgentContext:
    """The memory of one agent; only the last `max_history_size` messages are kept."""

    def __init__(self, agent_id: str = "agent", max_history_size: int = 100) -> None:
        if not isinstance(agent_id, str) or not agent_id:
            raise ConfigError(f"agent_id must be a string, not {agent_id!r}")
        if not isinstance(max_history_size, int) or max_history_size < 0:
            raise ConfigError(f"max_history_size must be 0 or more, not {max_history_size!r}")
        self.agent_id = agent_id
        self.max_history_size = max_history_size
        self.history: list[dict[str, str]] = []
        self.data: dict[str, Any] = {}

    def add_message(self, role: str, content: str) -> None:
        """Add a message of "user" or "assistant"."""
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
        """Read what `save` wrote: the memory, and the names of the tools the agent had."""
        try:
            value = json.loads(Path(path).read_text("utf-8"))
            whole = msgspec.convert(value, _File)
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} does not hold an agent's memory: {error}") from error
        if whole.format != FORMAT:
            raise ConfigError(f"{path} has format {whole.format}; this version reads {FORMAT}")
        found = cls(whole.agent_id, whole.max_history_size)
        for message in whole.history:
            found.add_message(message.role, message.content)
        found.data = whole.context_data
        return found, tuple(whole.tools)
