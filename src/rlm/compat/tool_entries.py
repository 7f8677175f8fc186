"""Entries of `custom_tools`, as the reference's environments read them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlm.errors import ConfigError

__all__ = [
    "RESERVED_TOOL_NAMES",
    "ToolInfo",
    "extract_tool_value",
    "format_tools_for_prompt",
    "parse_custom_tools",
    "parse_tool_entry",
    "validate_custom_tools",
]

RESERVED_TOOL_NAMES = frozenset(
    {
        *("llm_query", "llm_query_batched", "rlm_query", "rlm_query_batched", "SHOW_VARS"),
        *("answer", "context", "history"),
    }
)
"""Names of the REPL that a tool can't have."""


@dataclass
class ToolInfo:
    """One entry: its name, the function or value, and what the prompt says about it."""

    name: str
    value: Any
    description: str | None = None

    @property
    def is_callable(self) -> bool:
        return callable(self.value)


def parse_tool_entry(name: str, entry: Any) -> ToolInfo:
    """Return an entry: a function or value, or `{"tool": …, "description": …}`."""
    if not (isinstance(entry, dict) and "tool" in entry):
        return ToolInfo(name, entry)
    description = entry.get("description")
    return ToolInfo(name, entry["tool"], description if isinstance(description, str) else None)


def parse_custom_tools(custom_tools: Mapping[str, Any] | None) -> list[ToolInfo]:
    return [parse_tool_entry(name, entry) for name, entry in (custom_tools or {}).items()]


def extract_tool_value(entry: Any) -> Any:
    """Return the function or value of an entry."""
    return parse_tool_entry("", entry).value


def format_tools_for_prompt(custom_tools: Mapping[str, Any] | None) -> str | None:
    """Return a line for each tool; None if there are none."""
    if not isinstance(custom_tools, Mapping) or not custom_tools:
        return None
    return "\n".join(
        f"- `{each.name}`: {_about(each)}" for each in parse_custom_tools(custom_tools)
    )


def _about(tool: ToolInfo) -> str:
    if tool.description:
        return tool.description
    return "a function of the program" if tool.is_callable else f"a {type(tool.value).__name__}"


def validate_custom_tools(custom_tools: Mapping[str, Any] | None) -> None:
    """Raise if a tool has the name of something in the REPL."""
    if taken := sorted(RESERVED_TOOL_NAMES & (custom_tools or {}).keys()):
        raise ConfigError(
            f"a tool can't be named {', '.join(taken)}: the REPL already has "
            f"{', '.join(sorted(RESERVED_TOOL_NAMES))}"
        )
