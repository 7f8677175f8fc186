"""Replies and results as the reference reads and writes them."""

from typing import Any

from rlm.compat.types import REPLResult, RLMIteration

__all__ = [
    "convert_context_for_repl",
    "find_code_blocks",
    "format_execution_result",
    "format_iteration",
]

MAX_OUTPUT_CHARS = 20_000
SHOWN_TYPES = (str, int, float, bool, list, dict, tuple)
FENCE = "```"


def find_code_blocks(text: str) -> list[str]:
    """Return the code of every block that is fenced as `repl`, and of no other."""
    blocks: list[str] = []
    lines: list[str] | None = None
    for line in text.splitlines():
        if lines is not None and line.startswith(FENCE):
            blocks.append("\n".join(lines).strip())
            lines = None
        elif lines is not None:
            lines.append(line)
        elif line.rstrip().endswith(f"{FENCE}repl"):
            lines = []
    return blocks


def format_execution_result(result: REPLResult) -> str:
    """Return the output of a block and the names of its variables."""
    parts = [f"\n{text}" for text in (result.stdout, result.stderr) if text]
    names = [
        name
        for name, value in result.locals.items()
        if not name.startswith("_") and isinstance(value, SHOWN_TYPES)
    ]
    if names:
        parts.append(f"REPL variables: {names}\n")
    return "\n\n".join(parts) or "No output"


def format_iteration(
    iteration: RLMIteration, max_character_length: int = MAX_OUTPUT_CHARS
) -> list[dict[str, str]]:
    """Return an iteration as messages: the reply, and the output of its blocks if it has any."""
    messages = [{"role": "assistant", "content": iteration.response}]
    outputs = []
    several = len(iteration.code_blocks) > 1
    for number, block in enumerate(iteration.code_blocks, 1):
        text = format_execution_result(block.result)
        left_out = len(text) - max_character_length
        if left_out > 0:
            text = f"{text[:max_character_length]}... + [{left_out} chars...]"
        heading = f"REPL output (block {number}):" if several else "REPL output:"
        outputs.append(f"{heading}\n{text}")
    if outputs:
        messages.append({"role": "user", "content": "\n\n".join(outputs)})
    return messages


def convert_context_for_repl(context: Any) -> tuple[Any, str | None]:
    """Return a context as data and as text, one of which is None; messages become their texts."""
    if isinstance(context, str):
        return None, context
    first = context[0] if isinstance(context, list) and context else None
    if isinstance(first, dict) and "content" in first:
        return [message.get("content", "") for message in context], None
    return context, None
