"""The reference engine's path to the reading of replies."""

from rlm.compat.parsing import (
    convert_context_for_repl,
    find_code_blocks,
    format_execution_result,
    format_iteration,
)

__all__ = [
    "convert_context_for_repl",
    "find_code_blocks",
    "format_execution_result",
    "format_iteration",
]
