"""The names that a cell finds in the REPL, a published interface.

`REPL_NAMES` is data for prompts and documentation. `Namespace` binds the objects in the real
`__main__`, so that user classes can be pickled, and restores those that must not change.
"""

from __future__ import annotations

import builtins
import collections
import json
import keyword
import math
import re
from itertools import filterfalse
from types import ModuleType

from .ctx import ContextView
from .sources import view_of

__all__ = ["PRELOADED", "REPL_NAMES", "Namespace", "ReplName"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .corpora import CorpusView
    from .tables import TablesView


class ReplName:
    """One published name. `restored`: if a cell rebinds it, the next cell finds the original.

    `yields`: a tool of that name replaces it, and a variable of that name belongs to the user.
    """

    __slots__ = ("description", "name", "restored", "usage", "yields")

    def __init__(
        self, usage: str, description: str, restored: bool = False, yields: bool = False
    ) -> None:
        self.name = usage.partition("(")[0].partition("[")[0]
        self.usage = usage
        self.description = description
        self.restored = restored
        self.yields = yields


REPL_NAMES = (
    ReplName("context", "the payload: a real str, list or dict"),
    ReplName("context_0", "the original payload, whatever `context` is rebound to", restored=True),
    ReplName("P", "the same payload under a short name"),
    ReplName("ctx", "helper over the payload: slice find grep chunk lines documents describe"),
    ReplName("peek(n=2000)", "the first n characters of the payload"),
    ReplName("tail(n=2000)", "the last n characters of the payload"),
    ReplName("lenP()", "the payload's length in characters"),
    ReplName(
        "llm_query(prompt, model=None, images=None)",
        "one plain model call, gives a str; `images`: PNG, JPEG, GIF or WebP bytes, or names of "
        "the context's pictures; `schema=`: a checked value in place of the str",
        restored=True,
    ),
    ReplName(
        "llm_query_batched(prompts, model=None, images=None)",
        "many model calls at once, same order out; a failed item does not lose the others; "
        "`images`: a list for each prompt",
        restored=True,
    ),
    ReplName(
        "llm_batch(prompts, model=None, images=None)",
        "the same as llm_query_batched",
        restored=True,
    ),
    ReplName(
        "rlm_query(prompt, context=None, model=None)",
        "a child run with its own fresh REPL; only its answer comes back",
        restored=True,
    ),
    ReplName(
        "rlm_query_batched(prompts, contexts=None, model=None)",
        "many child runs at once, same order out",
        restored=True,
    ),
    ReplName(
        "llm_query_json(prompt, model=None, images=None)",
        "a model call, reply parsed as JSON",
        restored=True,
    ),
    ReplName(
        "map_query(question, chunks, model=None)",
        "the same question about every chunk, replies in order",
        restored=True,
    ),
    ReplName(
        'classify(items, labels, guide="")',
        "the label of every item, in order, checked where the model is unsure",
        yields=True,
    ),
    ReplName("where(items, condition)", "the items that meet a condition", yields=True),
    ReplName(
        "extract(items, schema)",
        'a dict for every item; schema: {"name": "str", "amount": "float"} or a JSON schema',
        yields=True,
    ),
    ReplName(
        "answer_each(question, items)",
        "the answer of every item, None where it has none",
        yields=True,
    ),
    ReplName(
        "pairs(left, right, condition)",
        "the pairs (left item, right item) that meet a condition",
        yields=True,
    ),
    ReplName("rank(items, criterion, k)", "the k best items, best first", yields=True),
    ReplName("merge(texts, question)", "one answer from many texts", yields=True),
    ReplName("vote(answers)", "the most frequent answer"),
    ReplName("budget()", "what is left: tokens, money, seconds, calls"),
    ReplName(
        "cite(start, end=None, name=None)",
        "cite a place that supports the answer, by offsets or by a verbatim quote; gives its text",
        restored=True,
    ),
    ReplName("SHOW_VARS()", "your variables as name: type[length]", restored=True),
    ReplName("FINAL(value)", "hand in a value as the answer", restored=True),
    ReplName('FINAL_VAR("name")', "hand in a variable as the answer", restored=True),
    ReplName("SUBMIT(value)", "the same as FINAL", restored=True),
    ReplName(
        "submit_answer(answer=None, variable_name=None)", "the same as FINAL or FINAL_VAR", True
    ),
    ReplName("answer", 'set answer["content"], then answer["ready"] = True, to hand it in'),
    ReplName("call_tool(name, **arguments)", "call a registered tool", restored=True),
    ReplName("history", "in chats: the turns so far"),
    ReplName("FailedReply", "the type of a failed item in a batch; it has .failed and .reason"),
    ReplName("CallFailed", "raised by a model call that failed or was refused"),
    ReplName("ToolFailed", "raised by a tool call that failed"),
    ReplName("QueryFailed", "raised by a query of a table that failed"),
)

_YIELDING_NAMES = frozenset(entry.name for entry in REPL_NAMES if entry.yields)
PRELOADED: dict[str, Any] = {
    "re": re,
    "json": json,
    "math": math,
    "Counter": collections.Counter,
    "defaultdict": collections.defaultdict,
}
"""Modules that every cell finds imported. Tools, contexts and cells may use their names freely."""

_RESTORED_NAMES = frozenset(entry.name for entry in REPL_NAMES if entry.restored)
_PLAIN_MODULE: dict[str, Any] = {
    "__name__": "__main__",
    "__doc__": None,
    "__package__": None,
    "__loader__": None,
    "__spec__": None,
    "__builtins__": builtins,
}


class Namespace:
    """The globals of all cells, and which of them the REPL provides."""

    def __init__(self, variables: dict[str, Any]) -> None:
        self.variables = variables
        variables.clear()
        variables.update(_PLAIN_MODULE)
        variables.update(PRELOADED)
        self._ours: dict[str, Any] = {}
        self._restored = dict(_PLAIN_MODULE)
        self._view: ContextView | TablesView | CorpusView = ContextView("")
        self._tools: dict[str, Any] = {}

    @property
    def ours(self) -> dict[str, Any]:
        """The objects that the REPL provides, by name."""
        return dict(self._ours)

    def provide(self, names: dict[str, Any]) -> None:
        """Bind names of the REPL; those published as `restored` will be restored."""
        self.variables.update(names)
        self._ours.update(names)
        self._restored.update({n: v for n, v in names.items() if n in _RESTORED_NAMES})

    def set_tools(self, tools: dict[str, Any]) -> None:
        """Replace the tools of the host."""
        for name in self._tools.keys() - tools.keys():
            self._ours.pop(name, None)
            self._restored.pop(name, None)
            if self.variables.get(name) is self._tools[name]:
                del self.variables[name]
                if name in PRELOADED:
                    self.variables[name] = PRELOADED[name]
        for name in self._tools.keys() & tools.keys():
            self._ours.pop(name, None)
        self.provide_tools(tools)
        self._tools = {name: tool for name, tool in tools.items() if self._ours.get(name) is tool}

    def provide_tools(self, tools: dict[str, Any]) -> None:
        """Bind tools by name, unless the name is taken or invalid; all are restored."""
        free = {
            name: tool
            for name, tool in tools.items()
            if name.isidentifier()
            and not keyword.iskeyword(name)
            and (name not in self._ours or name in _YIELDING_NAMES)
        }
        self.provide(free)
        self._restored.update(free)

    def load(self, name: str, value: Any) -> None:
        """Bind a context; the first one, `context`, also feeds ctx, P, peek, tail and lenP."""
        self.provide({name: value})
        if name == "context":
            view = view_of(value) or ContextView(value)
            self._view = view
            self.provide({"context_0": value, "P": value, "ctx": view})
            self.provide({"peek": view._peek, "tail": view._tail, "lenP": view._length})

    def restore(self) -> None:
        """Restore the names that must not change, Python's builtins included."""
        self.variables.update(self._restored)

    def users_own(self) -> list[tuple[str, Any]]:
        """Return the user's variables: no private names, no modules, and nothing from the REPL.

        A rebound `answer` is part of the REPL while it is a dict.
        """
        ours, variables = self._ours, self.variables.copy()
        return [
            (name, value)
            for name in filterfalse(self._restored.__contains__, variables)
            if ours.get(name, ours) is not (value := variables[name])
            and PRELOADED.get(name, PRELOADED) is not value
            and isinstance(name, str)
            and name[:1] != "_"
            and name.isidentifier()
            and not issubclass(type(value), ModuleType)  # `isinstance` could run user code.
            and (name != "answer" or not issubclass(type(value), dict))
        ]
