"""The tools of the host as cells see them: functions, and proxies of objects with methods.

A tool is described by one line, `` `name(signature)`: text ``. Tools named `object.member` become
the members of one proxy: methods, and attributes if the line shows no brackets. A proxy holds
nothing of the object; its members are calls of tools.
"""

from __future__ import annotations
import __future__

import ast

from .calls import call_tool

__all__ = ["ObjectProxy", "made_tools", "signature_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType
    from typing import Any

    from .calls import Dialogue
    from .functions import CallFunctions

_ANNOTATIONS = __future__.annotations.compiler_flag


class ObjectProxy:
    """An object of the program around this REPL, of which only some members can be used."""

    __slots__ = ()
    __module__ = "__main__"
    __name__ = ""
    _members: tuple[str, ...] = ()
    _usage = ""

    def __repr__(self) -> str:
        return self._usage

    def __dir__(self) -> list[str]:
        return list(self._members)

    def __getattr__(self, name: str) -> Any:
        listed = ", ".join(self._members)
        raise AttributeError(f"{self.__name__}.{name} can't be used here; names: {listed}")

    def __reduce__(self) -> str:
        return self.__name__  # Unpickled by looking up this name in the REPL.


def made_tools(listed: list[dict[str, str]], functions: CallFunctions) -> dict[str, Any]:
    """Return a function or a proxy for each tool, by name."""
    described = {each["name"]: each["description"] for each in listed}
    members: dict[str, list[str]] = {}
    for name in described:
        owner, dot, member = name.partition(".")
        if dot and owner in described and member.isidentifier():
            members.setdefault(owner, []).append(member)
    return {
        name: _proxy(name, members[name], described, functions)
        if name in members
        else _function(name, described[name], functions)
        for name in described
        if name.partition(".")[0] not in members or name in members
    }


def _proxy(
    name: str, members: list[str], described: dict[str, str], functions: CallFunctions
) -> ObjectProxy:
    usages = [_usage(f"{name}.{each}", described[f"{name}.{each}"]) for each in members]
    contents: dict[str, Any] = {
        "__slots__": (),
        "__module__": "__main__",
        "__doc__": "\n".join([described[name], *(described[f"{name}.{m}"] for m in members)]),
        "__name__": name,
        "_members": tuple(members),
        "_usage": f"<{name}: an object with {', '.join(usages)}>",
    }
    for member, usage in zip(members, usages):  # noqa: B905 (not in 3.9)
        whole = f"{name}.{member}"
        function = _function(whole, described[whole], functions)
        is_attribute = usage == whole
        contents[member] = _attribute(function) if is_attribute else staticmethod(function)
    if _usage(name, described[name]) != name:
        contents["__call__"] = _caller(_function(name, described[name], functions))
    kind: Any = type(name, (ObjectProxy,), contents)
    return kind()  # type: ignore[no-any-return]


def _attribute(function: Callable[..., Any]) -> property:
    return property(lambda _: function(), doc=function.__doc__)


def _caller(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(_: Any, *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    call.__doc__ = function.__doc__
    return call


def _function(name: str, description: str, functions: CallFunctions) -> Callable[..., Any]:
    """Return a function that calls a tool, with its name and signature."""

    def dialogue(*arguments: Any, **named: Any) -> Dialogue:
        return call_tool(name, *arguments, **named)

    dialogue.__name__ = name.rpartition(".")[2]
    dialogue.__qualname__ = name
    dialogue.__doc__ = description
    shown: Any = signature_of(name, description)
    if shown is not None:
        vars(dialogue)["__wrapped__"] = shown
    return functions.make(dialogue)


def _usage(name: str, description: str) -> str:
    """Return how a tool is used, according to its line; only its name if the line does not say."""
    usage = description[1:].partition("`")[0] if description[:1] == "`" else name
    return usage if usage.startswith(f"{name}(") else name


def signature_of(name: str, description: str) -> FunctionType | None:
    """Return an empty function with the signature that a line shows, or None if it shows none.

    `inspect.signature` and `help` follow `__wrapped__` to it. Nothing in the line is executed:
    defaults must be literals, and annotations stay text.
    """
    usage = _usage(name, description)
    source = f"def {name.rpartition('.')[2]}{usage[len(name) :]}: ..."
    try:
        tree = ast.parse(source)
        (made,) = tree.body
        if not isinstance(made, ast.FunctionDef):
            return None
        for default in (*made.args.defaults, *made.args.kw_defaults):
            if default is not None:
                ast.literal_eval(default)
        code = compile(tree, "<tool>", "exec", _ANNOTATIONS, dont_inherit=True)
        found: dict[str, Any] = {}
        exec(code, {"__builtins__": {}}, found)
        return found[made.name]  # type: ignore[no-any-return]
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError, NameError):
        return None
