"""rlm: a Recursive Language Model engine.

Everything below is imported on first use, so that `import rlm` costs next to nothing.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlm.agent import AgentContext as AgentContext
    from rlm.agent import AgentRLM as AgentRLM
    from rlm.agent import create_enforced_agent as create_enforced_agent
    from rlm.api import RLM as RLM
    from rlm.api import acompletion as acompletion
    from rlm.api import completion as completion
    from rlm.calls.cache import ReplyCache as ReplyCache
    from rlm.calls.rate_limits import RateLimit as RateLimit
    from rlm.chat.chat import Chat as Chat
    from rlm.compat.types import Completion as Completion
    from rlm.config import Guards as Guards
    from rlm.context import files as files
    from rlm.data import FetchLimits as FetchLimits
    from rlm.data import database as database
    from rlm.data import place as place
    from rlm.data import table as table
    from rlm.data import tables as tables
    from rlm.errors import BudgetExceededError as BudgetExceededError
    from rlm.errors import CallRefused as CallRefused
    from rlm.errors import CancellationError as CancellationError
    from rlm.errors import ConfigError as ConfigError
    from rlm.errors import ErrorThresholdExceededError as ErrorThresholdExceededError
    from rlm.errors import LimitExceededError as LimitExceededError
    from rlm.errors import ModelError as ModelError
    from rlm.errors import RLMEnforcementError as RLMEnforcementError
    from rlm.errors import RLMError as RLMError
    from rlm.errors import SessionError as SessionError
    from rlm.errors import TimeoutExceededError as TimeoutExceededError
    from rlm.errors import TokenLimitExceededError as TokenLimitExceededError
    from rlm.limits import Limits as Limits
    from rlm.logger import RLMLogger as RLMLogger
    from rlm.messages import Price as Price
    from rlm.results import RunResult as RunResult
    from rlm.testing.scripted import ScriptedClient as ScriptedClient

__version__ = "0.1.0"

_HOMES = {
    "AgentContext": "rlm.agent",
    "AgentRLM": "rlm.agent",
    "BudgetExceededError": "rlm.errors",
    "CallRefused": "rlm.errors",
    "CancellationError": "rlm.errors",
    "Chat": "rlm.chat.chat",
    "Completion": "rlm.compat.types",
    "ConfigError": "rlm.errors",
    "ErrorThresholdExceededError": "rlm.errors",
    "FetchLimits": "rlm.data",
    "Guards": "rlm.config",
    "LimitExceededError": "rlm.errors",
    "Limits": "rlm.limits",
    "ModelError": "rlm.errors",
    "NoAnswerError": "rlm.errors",
    "Price": "rlm.messages",
    "RLM": "rlm.api",
    "RLMEnforcementError": "rlm.errors",
    "RLMError": "rlm.errors",
    "RLMLogger": "rlm.logger",
    "RateLimit": "rlm.calls.rate_limits",
    "ReplyCache": "rlm.calls.cache",
    "RunResult": "rlm.results",
    "ScriptedClient": "rlm.testing.scripted",
    "SessionError": "rlm.errors",
    "TimeoutExceededError": "rlm.errors",
    "TokenLimitExceededError": "rlm.errors",
    "acompletion": "rlm.api",
    "completion": "rlm.api",
    "create_enforced_agent": "rlm.agent",
    "database": "rlm.data",
    "files": "rlm.context",
    "place": "rlm.data",
    "table": "rlm.data",
    "tables": "rlm.data",
}

__all__ = [  # noqa: RUF022 - plain order, pinned by a test
    "AgentContext",
    "AgentRLM",
    "BudgetExceededError",
    "CallRefused",
    "CancellationError",
    "Chat",
    "Completion",
    "ConfigError",
    "ErrorThresholdExceededError",
    "FetchLimits",
    "Guards",
    "LimitExceededError",
    "Limits",
    "ModelError",
    "NoAnswerError",
    "Price",
    "RLM",
    "RLMEnforcementError",
    "RLMError",
    "RLMLogger",
    "RateLimit",
    "ReplyCache",
    "RunResult",
    "ScriptedClient",
    "SessionError",
    "TimeoutExceededError",
    "TokenLimitExceededError",
    "acompletion",
    "completion",
    "create_enforced_agent",
    "database",
    "files",
    "place",
    "table",
    "tables",
]


def _warn_of_other_packages(folder: str) -> None:
    """Warn if another distribution that installs a package `rlm` is recorded in the same folder.

    Reading the names in one folder costs a fraction of a millisecond; `rlm doctor` looks closer.
    """
    if not folder.endswith(("site-packages", "dist-packages")):
        return
    for entry in os.listdir(folder):  # noqa: PTH208 - pathlib would double the cost of `import rlm`
        if entry.startswith(("rlms-", "rlm_engine-")) and entry.endswith(".dist-info"):
            import warnings

            other = entry.partition("-")[0].replace("_", "-")
            warnings.warn(
                f"{other} is installed in the same place and also has a package named rlm, so the "
                f"files of both are mixed: uninstall {other} and recursivelm, then install "
                "recursivelm again",
                RuntimeWarning,
                stacklevel=2,
            )


_warn_of_other_packages(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'rlm' has no attribute {name!r}") from None
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
