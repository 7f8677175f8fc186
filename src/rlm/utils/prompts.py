"""The reference engine's path to its prompts, which are ours."""

from rlm.compat.prompts import (
    ORCHESTRATOR_ADDENDUM,
    RLM_SYSTEM_PROMPT,
    USER_PROMPT,
    build_rlm_system_prompt,
    build_user_prompt,
)
from rlm.compat.types import QueryMetadata

__all__ = [
    "ORCHESTRATOR_ADDENDUM",
    "RLM_SYSTEM_PROMPT",
    "USER_PROMPT",
    "QueryMetadata",
    "build_rlm_system_prompt",
    "build_user_prompt",
]
