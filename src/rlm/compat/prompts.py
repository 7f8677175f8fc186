"""The reference's prompt builders, over our own instructions."""

from collections.abc import Mapping
from typing import Any

from rlm.compat.tool_entries import format_tools_for_prompt
from rlm.compat.types import QueryMetadata
from rlm.config import RunConfig
from rlm.messages import ModelInfo
from rlm.prompts import system_prompt

__all__ = [
    "ORCHESTRATOR_ADDENDUM",
    "RLM_SYSTEM_PROMPT",
    "USER_PROMPT",
    "build_rlm_system_prompt",
    "build_user_prompt",
    "filled_prompt",
]

SLOT = "{custom_tools_section}"
"""Where a prompt of the reference lists the tools; all other braces in it are doubled."""

MAX_ITERATIONS = 30


def _template(orchestrator: bool) -> str:
    """Return our instructions as a prompt of the reference."""
    config = RunConfig(model="", sub_model="", orchestrator=orchestrator)
    whole = system_prompt(config, ModelInfo(), ModelInfo(), 0, ("\0",))
    return whole.replace("{", "{{").replace("}", "}}").replace("- \0", SLOT)


RLM_SYSTEM_PROMPT = _template(orchestrator=True)
"""The instructions of a run; `custom_system_prompt=RLM_SYSTEM_PROMPT + more` extends them."""

ORCHESTRATOR_ADDENDUM = (
    "Plan before you act: split the task into steps, give long texts to calls in pieces, check "
    "what comes back, and submit an answer only when you have seen it."
)
USER_PROMPT = "Turn {iter_1}/{max_iter}:"
"""The reference's text before each step; ours says with the output how many steps are left."""


def filled_prompt(template: str, given: Mapping[str, Any]) -> str:
    """Return a custom prompt with its tools listed and its doubled braces made single.

    A prompt that is not such a template is used unchanged.
    """
    tools = format_tools_for_prompt(given.get("custom_tools")) or ""
    try:
        return template.format(custom_tools_section=tools)
    except (AttributeError, IndexError, KeyError, ValueError):
        return template


def build_rlm_system_prompt(
    system_prompt: str,
    query_metadata: QueryMetadata,
    custom_tools: dict[str, Any] | None = None,
    root_prompt: str | None = None,
    orchestrator: bool = True,
) -> list[dict[str, str]]:
    """Return the first two messages of a run: its instructions, and what its context is."""
    filled = filled_prompt(system_prompt, {"custom_tools": custom_tools})
    if orchestrator and system_prompt != RLM_SYSTEM_PROMPT:
        filled = f"{filled}\n\n{ORCHESTRATOR_ADDENDUM}"
    about = (
        f"The context is a {query_metadata.context_type} with "
        f"{query_metadata.context_total_length:,} characters."
    )
    task = f"{root_prompt}\n\n{about}" if root_prompt else about
    return [{"role": "system", "content": filled}, {"role": "user", "content": task}]


def build_user_prompt(
    root_prompt: str | None = None,
    iteration: int = 0,
    context_count: int = 1,
    history_count: int = 0,
    max_iterations: int = MAX_ITERATIONS,
) -> dict[str, str]:
    """Return the message before one step; `iteration` counts from 0."""
    lines = [USER_PROMPT.format(iter_1=iteration + 1, max_iter=max_iterations)]
    if iteration == 0:
        lines.insert(0, "Nothing has been read yet: look at the context before you answer.")
    if context_count > 1:
        lines.append(
            f"There are {context_count} contexts: context_0 to context_{context_count - 1}."
        )
    if history_count:
        last = f" to history_{history_count - 1}" if history_count > 1 else ""
        lines.append(f"Earlier conversations are in history_0{last} (`history` is the first).")
    return {"role": "user", "content": "\n\n".join(lines)}
