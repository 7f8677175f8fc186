"""How models are reached: one file a wire dialect, and two that need no network.

`OpenAICompatClient` speaks chat completions, `ScriptedClient` answers from a script (for tests),
`OfflineClient` is an extractive stand-in. Nothing is imported before it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlm.clients.offline import OfflineClient
    from rlm.clients.openai import OpenAICompatClient
    from rlm.clients.scripted import ScriptedClient

__all__ = ["OfflineClient", "OpenAICompatClient", "ScriptedClient"]

_HOMES = {"OfflineClient": "offline", "OpenAICompatClient": "openai", "ScriptedClient": "scripted"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
