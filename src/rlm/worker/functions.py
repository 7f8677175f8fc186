"""Dialogues as functions that a cell can call, or await."""

from __future__ import annotations

import functools
import sys

from .bounds import checked
from .calls import call_tool, llm_query
from .keywords import parameters, renamed
from .replies import awaitable

__all__ = ["CallFunctions"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .calls import Dialogue, Dialogues
    from .channel import Channel


class CallFunctions:
    """Turns dialogues into functions that run over a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._twins: dict[Any, Callable[..., Any]] = {}

    def async_form(self, function: Any) -> Any:
        """The async twin of one of our functions; anything else is returned as it is."""
        ours = type(function) is type(llm_query) and function in self._twins
        return self._twins[function] if ours else function

    def make(self, dialogues: Dialogues) -> Callable[..., Any]:
        """A blocking function, and its async twin, that hold this dialogue with the host."""
        known = parameters(dialogues)

        @functools.wraps(dialogues)
        def blocking(*arguments: Any, **named: Any) -> Any:
            value = self._run(dialogues(*arguments, **renamed(named, known)))
            return awaitable(value) if _loop_is_running() else value

        @functools.wraps(dialogues)
        async def twin(*arguments: Any, **named: Any) -> Any:
            return await self._run_async(dialogues(*arguments, **renamed(named, known)))

        for form in (blocking, twin):
            form.__module__ = "__main__"
        self._twins[blocking] = twin
        return blocking

    def make_tool(self, name: str, description: str) -> Callable[..., Any]:
        """A function named like the tool it calls."""

        def dialogue(*arguments: Any, **named: Any) -> Dialogue:
            return call_tool(name, *arguments, **named)

        dialogue.__name__ = dialogue.__qualname__ = name
        dialogue.__doc__ = description
        return self.make(dialogue)

    def _run(self, dialogue: Dialogue) -> Any:
        try:
            parts = next(dialogue)
            while True:
                parts = dialogue.send(self._channel.ask(checked(parts)))
        except StopIteration as end:
            return end.value

    async def _run_async(self, dialogue: Dialogue) -> Any:
        try:
            parts = next(dialogue)
            while True:
                parts = dialogue.send(await self._channel.ask_async(checked(parts)))
        except StopIteration as end:
            return end.value


def _loop_is_running() -> bool:
    """Whether this thread runs an event loop; asks without importing asyncio."""
    running_loop = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    return running_loop is not None and running_loop() is not None
