"""The reference engine's path to `RLM`; tests of programs replace `get_client` here."""

from rlm.api import RLM
from rlm.compat.clients import BaseLM, get_client
from rlm.compat.handlers import LMHandler
from rlm.compat.prompts import RLM_SYSTEM_PROMPT, build_rlm_system_prompt, build_user_prompt
from rlm.compat.repl import BaseEnv, SupportsPersistence, get_environment
from rlm.compat.types import Completion as RLMChatCompletion
from rlm.compat.verbose import VerbosePrinter
from rlm.logger import RLMLogger

__all__ = [
    "RLM",
    "RLM_SYSTEM_PROMPT",
    "BaseEnv",
    "BaseLM",
    "LMHandler",
    "RLMChatCompletion",
    "RLMLogger",
    "SupportsPersistence",
    "VerbosePrinter",
    "build_rlm_system_prompt",
    "build_user_prompt",
    "get_client",
    "get_environment",
]
