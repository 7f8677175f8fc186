"""Types that public annotations name and few programs use; each is imported on first use.

Written as `late.Chat` in an annotation, they are known to type checkers, `typing.get_type_hints`
and `inspect.signature(…, eval_str=True)`; a name imported for type checkers only is not.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlm.chat.chat import Chat
    from rlm.compat.types import Completion, RLMMetadata
    from rlm.compat.values import CellValues
    from rlm.compat.verbose import VerbosePrinter
    from rlm.logger import RLMLogger
    from rlm.wiring.runner import Runner

__all__ = [
    "CellValues",
    "Chat",
    "Completion",
    "RLMLogger",
    "RLMMetadata",
    "Runner",
    "VerbosePrinter",
]

_HOMES = {
    "CellValues": "rlm.compat.values",
    "Chat": "rlm.chat.chat",
    "Completion": "rlm.compat.types",
    "RLMLogger": "rlm.logger",
    "RLMMetadata": "rlm.compat.types",
    "Runner": "rlm.wiring.runner",
    "VerbosePrinter": "rlm.compat.verbose",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
