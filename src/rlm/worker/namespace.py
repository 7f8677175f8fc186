"""The objects behind the names that a cell finds in the REPL.

`Namespace` binds them in the real `__main__`, so that user classes can be pickled, and restores
those that must not change.
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
from .repl_names import REPL_NAMES
from .sources import view_of

__all__ = ["PRELOADED", "Namespace"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .corpora import CorpusView
    from .tables import TablesView


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
