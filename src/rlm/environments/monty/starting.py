"""How a worker starts: its limits, and the names that stand for functions of the host."""

from collections.abc import Callable
from typing import Any

from rlm.environments.monty.cell import ASYNC_PREFIX
from rlm.environments.monty.questions import Questions
from rlm.worker.namespace import REPL_NAMES

__all__ = ["KEPT", "stubs", "worker_settings"]

_MEMORY_BYTES = 2 << 30
_ROOM_BYTES = 64 << 20
"""For contexts, the REPL's own names, and values on their way out."""

_MOST_SECONDS = 3_600.0
_MOST_SUSPENSIONS = 1 << 62
_RESTORED = sorted(entry.name for entry in REPL_NAMES if entry.restored)
_LINES = (
    "context = context_0 = P = ''",
    "ctx = _rlm_view",
    "_rlm_kept = {name: value for name, value in locals().items() if name[0] != '_'}",
    "_rlm_note_ours(locals())",
)
KEPT = "\n".join(_LINES)
"""The end of the prelude: what is bound by now is the REPL's."""


def worker_settings(options: dict[str, Any]) -> dict[str, Any]:
    """What a worker is checked out with."""
    memory = options.get("cell_memory_bytes") or _MEMORY_BYTES
    return {
        "limits": {
            "max_memory": memory + _ROOM_BYTES,
            "max_suspensions": _MOST_SUSPENSIONS,
            "max_feed_duration_secs": _MOST_SECONDS,
        },
        "os_policy": {"sleep": "call_host", "random_start": {"seed": options.get("seed", 0)}},
        "assert_message_annotations": False,
    }


def stubs(questions: Questions) -> dict[str, Callable[[], None]]:
    """Functions that are never called: their names are how monty tells which one was."""
    names = questions.functions()
    return {name: _stub(name) for name in [*names, *map(async_name, names)]}


def async_name(name: str) -> str:
    """The name of the form that gives something to be awaited."""
    return f"{ASYNC_PREFIX}{name.removeprefix('_rlm_')}"


def _stub(name: str) -> Callable[[], None]:
    def function() -> None: ...

    function.__name__ = name
    return function
