"""Where model-written code runs. Each environment opens sessions; all use the same worker.

The names below are those of the reference engine, imported on first use.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.environments.base_env import (
        RESERVED_TOOL_NAMES,
        BaseEnv,
        SupportsCustomTools,
        SupportsPersistence,
        ToolInfo,
        extract_tool_value,
        format_tools_for_prompt,
        get_environment,
        parse_custom_tools,
        parse_tool_entry,
        validate_custom_tools,
    )
    from rlm.environments.ipython_repl import IPythonREPL
    from rlm.environments.local_repl import LocalREPL

__all__ = [
    "RESERVED_TOOL_NAMES",
    "BaseEnv",
    "IPythonREPL",
    "LocalREPL",
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

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "RESERVED_TOOL_NAMES": "base_env",
        "BaseEnv": "base_env",
        "IPythonREPL": "ipython_repl",
        "LocalREPL": "local_repl",
        "SupportsCustomTools": "base_env",
        "SupportsPersistence": "base_env",
        "ToolInfo": "base_env",
        "extract_tool_value": "base_env",
        "format_tools_for_prompt": "base_env",
        "get_environment": "base_env",
        "parse_custom_tools": "base_env",
        "parse_tool_entry": "base_env",
        "validate_custom_tools": "base_env",
    },
)
