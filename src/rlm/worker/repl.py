"""The REPL's own names, put into a namespace, and the values of contexts."""

from __future__ import annotations

import json

from . import calls
from .replies import CallFailed, FailedReply, ToolFailed
from .votes import vote

__all__ = ["made_tools", "provide_names", "value_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .finals import Finals
    from .functions import CallFunctions
    from .namespace import Namespace
    from .variables import Variables


def provide_names(
    namespace: Namespace,
    variables: Variables,
    finals: Finals,
    functions: CallFunctions,
) -> None:
    """Bind every published name; the context is empty until one is loaded."""

    def SHOW_VARS() -> str:
        """Your variables as `name: type[length]`."""
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
    )
    names = {each.__name__: functions.make(each) for each in dialogues}
    names["llm_batch"] = names["llm_query_batched"]
    types = {each.__name__: each for each in (CallFailed, FailedReply, ToolFailed)}
    namespace.provide({**names, **types, **finals.names()})
    namespace.provide({"vote": vote, "SHOW_VARS": SHOW_VARS})
    namespace.load("context", "")


def made_tools(listed: list[dict[str, str]], functions: CallFunctions) -> dict[str, Any]:
    """A function for each tool that the host listed, by name."""
    return {t["name"]: functions.make_tool(t["name"], t["description"]) for t in listed}


def value_of(kind: str, data: bytes | bytearray) -> Any:
    """What the bytes of a stored context stand for; ValueError if they do not."""
    if kind == "bytes":
        return bytes(data)
    text = data.decode("utf-8", "surrogatepass")
    return json.loads(text) if kind == "json" else text
