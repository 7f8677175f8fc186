"""The reference engine's path to the bases of its environments."""

from rlm.compat.repl import (
    BaseEnv,
    IsolatedEnv,
    NonIsolatedEnv,
    SupportsCustomTools,
    SupportsPersistence,
    get_environment,
)
from rlm.compat.tool_entries import (
    RESERVED_TOOL_NAMES,
    ToolInfo,
    extract_tool_value,
    format_tools_for_prompt,
    parse_custom_tools,
    parse_tool_entry,
    validate_custom_tools,
)

__all__ = [
    "RESERVED_TOOL_NAMES",
    "BaseEnv",
    "IsolatedEnv",
    "NonIsolatedEnv",
    "SupportsCustomTools",
    "SupportsPersistence",
    "ToolInfo",
    "extract_tool_value",
    "format_tools_for_prompt",
    "get_environment",
    "parse_custom_tools",
    "parse_tool_entry",
    "validate_custom_tools",
]
