"""The functions and values that cells find in the REPL.

`CallFunctions` turns the dialogues of `calls` into functions that a cell can call or await, and
`provide_names` binds every published name in a namespace.
"""

from __future__ import annotations

import functools
import json
import sys

from . import calls, citing, operators, tagged
from .bounds import checked
from .calls import llm_query
from .replies import CallFailed, FailedReply, ToolFailed, awaitable, vote
from .sources import made_source
from .tables import QueryFailed

__all__ = ["CallFunctions", "parameters", "provide_names", "renamed", "value_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .calls import Dialogue, Dialogues
    from .channel import Channel
    from .finals import Finals
    from .namespace import Namespace
    from .turns import Turns
    from .variables import Variables


class CallFunctions:
    """Turns dialogues into functions that make calls over a channel, in the current turn."""

    def __init__(self, channel: Channel, turns: Turns) -> None:
        self._channel = channel
        self._turns = turns
        self._twins: dict[Any, Callable[..., Any]] = {}

    def async_form(self, function: Any) -> Any:
        """Return the async twin of one of our functions, and anything else unchanged."""
        ours = type(function) is type(llm_query) and function in self._twins
        return self._twins[function] if ours else function

    def make(self, dialogues: Dialogues) -> Callable[..., Any]:
        """Make a blocking function, and its async twin, from a dialogue."""
        known = parameters(dialogues)

        @functools.wraps(dialogues)
        def blocking(*arguments: Any, **named: Any) -> Any:
            value = self.answer_of(dialogues(*arguments, **renamed(named, known)))
            return awaitable(value) if _loop_is_running() else value

        @functools.wraps(dialogues)
        async def twin(*arguments: Any, **named: Any) -> Any:
            return await self._run_async(dialogues(*arguments, **renamed(named, known)))

        for form in (blocking, twin):
            form.__module__ = "__main__"
        self._twins[blocking] = twin
        return blocking

    def answer_of(self, dialogue: Dialogue) -> Any:
        """Send each request of a dialogue to the host until it ends, and return its value."""
        try:
            parts = next(dialogue)
            while True:
                self._turns.check_call()
                parts = dialogue.send(self._channel.ask(checked(parts)))
        except StopIteration as end:
            return end.value

    def loaded(self, kind: str, data: bytes | bytearray) -> Any:
        """Return the value of a stored context; such a value may ask the host for its content."""
        return made_source(data, self.answer_of) if kind == "source" else value_of(kind, data)

    async def _run_async(self, dialogue: Dialogue) -> Any:
        try:
            parts = next(dialogue)
            while True:
                self._turns.check_call()
                parts = dialogue.send(await self._channel.ask_async(checked(parts)))
        except StopIteration as end:
            return end.value


def _loop_is_running() -> bool:
    """Return whether this thread is running an event loop, without importing asyncio."""
    running_loop = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    return running_loop is not None and running_loop() is not None


# -- the namespace --


def provide_names(
    namespace: Namespace,
    variables: Variables,
    finals: Finals,
    functions: CallFunctions,
) -> None:
    """Bind every published name; the context is empty until one is loaded."""

    def SHOW_VARS() -> str:
        """Return your variables as `name: type[length]`."""
        return variables.show()

    SHOW_VARS.__qualname__ = "SHOW_VARS"
    dialogues = (
        calls.llm_query,
        calls.llm_query_batched,
        calls.rlm_query,
        calls.rlm_query_batched,
        calls.llm_query_json,
        calls.map_query,
        calls.call_tool,
        calls.budget,
        citing.cite,
        *operators.DIALOGUES,
    )
    names = {each.__name__: functions.make(each) for each in dialogues}
    names["llm_batch"] = names["llm_query_batched"]
    types = {each.__name__: each for each in (CallFailed, FailedReply, QueryFailed, ToolFailed)}
    namespace.provide({**names, **types, **finals.names()})
    namespace.provide({"vote": vote, "SHOW_VARS": SHOW_VARS})
    namespace.load("context", "")


def value_of(kind: str, data: bytes | bytearray) -> Any:
    """Decode the bytes of a stored context; raise ValueError if they are invalid."""
    if kind == "bytes":
        return bytes(data)
    text = data.decode("utf-8", "surrogatepass")
    if kind == "tagged_json":
        return tagged.loads(text)
    return json.loads(text) if kind == "json" else text


# -- keywords that models mix up --

_ALIASES = (
    ("prompt", "query", "text", "question"),
    ("prompts", "queries", "texts"),
    ("context", "chunk"),
    ("contexts", "chunks"),
    ("images", "image", "pictures"),
)


def parameters(function: Any) -> tuple[str, ...]:
    """Return the parameters of a function; none if it takes any keyword."""
    code = function.__code__
    takes_any = code.co_flags & 0x08
    return () if takes_any else code.co_varnames[: code.co_argcount]


def renamed(named: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Rename aliased keywords to those of the function."""
    if not named or not known:
        return named
    result: dict[str, Any] = {}
    for name, value in named.items():
        group = next((group for group in _ALIASES if name in group), ())
        target = name if name in known else next((n for n in group if n in known), name)
        if target in result:
            raise TypeError(f"{target!r} was given twice, the second time as {name!r}")
        result[target] = value
    return result
