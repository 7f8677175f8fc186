"""An object, module or class as a tool: a proxy in cells, with some of its members as methods.

What may be used is decided here, once: each member becomes its own tool, `name.member`, with the
function that was found then. Whatever a cell asks for is looked up only among these names.
"""

import functools
import inspect
import keyword
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rlm.errors import ConfigError, ToolError
from rlm.protocols import Tool
from rlm.tools._arguments import summary
from rlm.tools._function import FunctionTool, checked_name, prompt_line
from rlm.worker import tagged

__all__ = ["ObjectTool", "has_methods", "is_data", "is_data_class", "refusal"]

MAX_METHODS = 40
"""Objects with more public methods need `expose`: their list would fill the prompt."""

_SUGGESTED = 5
_METHODS = (staticmethod, classmethod, functools.partialmethod, functools.singledispatchmethod)
_LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_DATA_CLASSES = (
    *(bool, int, float, complex, str, bytes, bytearray),
    *(list, tuple, set, frozenset, dict, range),
)


class ObjectTool:
    """An object whose methods cells may call, as in `db.search("x")`; implements `Tool`.

    Without `expose`, these are the public methods of its own class. `expose` names members instead:
    methods, and attributes that hold data. Modules and classes require it.
    """

    def __init__(
        self,
        target: Any,
        *,
        name: str | None = None,
        expose: Iterable[str] | None = None,
        description: str | None = None,
        timeout_seconds: float = 60.0,
    ) -> None:
        self.name = checked_name(name if name is not None else _name_of(target))
        self._given: dict[str, Any] = {"expose": expose, "timeout_seconds": timeout_seconds}
        self._target = target
        if expose is None:
            found: dict[str, Any] = dict(_own_methods(self.name, target))
        else:
            found = {each: _exposed(self.name, target, each) for each in _names_to_expose(expose)}
        self.members: tuple[FunctionTool, ...] = tuple(
            _Member(self.name, member, found[member], timeout_seconds, target) for member in found
        )
        self._called: FunctionTool | None = None
        kind = type(target).__name__
        usage = self.name
        if _is_callable(target):
            self._called = FunctionTool(target, name=self.name, timeout_seconds=timeout_seconds)
            self._called.hidden = target
            usage = self._called.usage
        text = description or summary(type(target)) or f"an object of type {kind}"
        if isinstance(target, types.ModuleType | type):
            text = description or f"some members of {_shown(target)}"
        self.description = prompt_line(usage, text)

    def __repr__(self) -> str:
        return f"ObjectTool({', '.join(member.usage for member in self.members)})"

    @property
    def tools(self) -> tuple[Tool, ...]:
        """This tool, and one for each member."""
        return (self, *self.members)

    def renamed(self, name: str | None, description: str | None) -> "ObjectTool":
        """Return the same object under another name or description."""
        if name in (None, self.name) and description is None:
            return self
        name = self.name if name is None else name
        return ObjectTool(self._target, name=name, description=description, **self._given)

    async def call(self, arguments: dict[str, Any]) -> Any:
        """Call the object itself, if that is possible."""
        if self._called is not None:
            return await self._called.call(arguments)
        usages = ", ".join(member.usage for member in self.members)
        raise ToolError(f"{self.name} is an object: call one of its methods: {usages}")


class _Member(FunctionTool):
    """A member of an object: a method, or the reading of an attribute."""

    def __init__(
        self, owner: str, member: str, found: Any, timeout_seconds: float, target: Any
    ) -> None:
        is_attribute = isinstance(found, _Attribute)
        function = found.read if is_attribute else found
        super().__init__(function, name=member, timeout_seconds=timeout_seconds)
        text = "" if is_attribute else summary(function)
        shown = "" if is_attribute else self._parameters.shown
        self.hidden = target
        self.name = f"{owner}.{member}"
        self.usage = f"{self.name}{shown}"
        self.description = prompt_line(self.usage, self._noted(text))

    @staticmethod
    def _checked_name(name: Any) -> str:
        return str(name)  # A public name; it may also exist in the REPL.


class _Attribute:
    """An attribute of one object that may be read."""

    def __init__(self, target: Any, name: str) -> None:
        self._target = target
        self._name = name

    def read(self) -> Any:
        """Return the current value."""
        return getattr(self._target, self._name)


# -- which members there are -------------------------------------------------------------------


def has_methods(value: Any) -> bool:
    """Return whether a callable also has methods of its own class."""
    plain = inspect.isroutine(value) or isinstance(value, type | types.ModuleType)
    return not plain and any(True for _ in _methods_of(type(value)))


def is_data(value: Any) -> bool:
    """Return whether a value can be copied to cells unchanged."""
    try:
        tagged.marked(value)
    except (TypeError, RecursionError):
        return False
    return True


def _own_methods(name: str, target: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public methods of an object's own class, bound to it."""
    if isinstance(target, types.ModuleType | type) or _is_standard(type(target)):
        raise refusal(name, target)
    found = dict(_methods_of(type(target)))
    if not found or len(found) > MAX_METHODS:
        raise refusal(name, target)
    for member, raw in found.items():
        yield member, raw.__get__(target, type(target))


def _methods_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield public methods as classes define them, without those that libraries add.

    A base class from a library offers far more than its user means to give away: pydantic's models
    can unpickle. Nothing is looked up on the object itself, so no property and no `__getattr__` is
    run.
    """
    seen: set[str] = set()
    for base in kind.__mro__:
        if base is object:
            continue
        for member, raw in vars(base).items():
            if member in seen or not _is_public(member):
                continue
            seen.add(member)  # A subclass may also hide a method: `search = None`.
            if _is_method(raw) and not _is_of_library(base, kind):
                yield member, raw


def _is_method(raw: Any) -> bool:
    if isinstance(raw, _METHODS):
        inner = getattr(raw, "__func__", None)
        return not isinstance(inner, type) and (inner is None or callable(inner))
    return callable(raw) and not isinstance(raw, type) and hasattr(type(raw), "__get__")


def _exposed(owner: str, target: Any, member: str) -> Any:
    """Return a member that the caller named: a callable, or an attribute with data."""
    try:
        found = getattr(target, member)
    except AttributeError:
        raise ConfigError(
            f"tool {owner!r}: expose names {member!r}, which {_shown(target, owner)} does not have"
        ) from None
    if isinstance(found, types.ModuleType):
        raise ConfigError(f"tool {owner!r}: {member!r} is a module; pass it as a separate tool")
    if isinstance(target, type) and inspect.isfunction(inspect.getattr_static(target, member)):
        raise ConfigError(
            f"tool {owner!r}: {member!r} is a method of the objects of {target.__name__}; "
            "pass such an object as the tool"
        )
    if callable(found):
        return found
    if not is_data(found):
        raise ConfigError(
            f"tool {owner!r}: {member!r} is an object of type {type(found).__name__}, but only "
            "methods and data can be exposed; pass it as a separate tool"
        )
    return _Attribute(target, member)


def _names_to_expose(expose: Any) -> list[str]:
    """Return the names to expose; ConfigError if one is not a public name."""
    if isinstance(expose, str | bytes) or not isinstance(expose, Iterable):
        raise ConfigError(f'expose must be a list of names, as in ["search"], not {expose!r}')
    names = list(dict.fromkeys(expose))
    for each in names:
        if not isinstance(each, str) or not _is_public(each):
            raise ConfigError(f"expose can't name {each!r}: only public names of the object itself")
    if not names:
        raise ConfigError('expose is empty: name what cells may use, as in expose=["search"]')
    return names


def _is_public(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_") and not keyword.iskeyword(name)


def _is_callable(target: Any) -> bool:
    return callable(target) and not isinstance(target, types.ModuleType | type)


def _is_standard(kind: type) -> bool:
    """Return whether a class is Python's own: its methods reach files, processes, networks."""
    top = kind.__module__.partition(".")[0]
    if top not in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is None or _LIBRARY in Path(file).resolve().parents


def _is_of_library(base: type, kind: type) -> bool:
    """Return whether a base class comes from Python, or from another installed package."""
    if _is_standard(base):
        return True
    top = base.__module__.partition(".")[0]
    if top == kind.__module__.partition(".")[0]:
        return False
    file = getattr(sys.modules.get(base.__module__), "__file__", None)
    return file is not None and not _INSTALLED.isdisjoint(Path(file).resolve().parts)


def _name_of(target: Any) -> str:
    if isinstance(target, types.ModuleType | type) or _is_callable(target):
        name = target.__name__ if hasattr(target, "__name__") else type(target).__name__
        return str(name).rpartition(".")[2]
    raise ConfigError('an object has no name: give it one, as in tools={"db": db}')


# -- refusals ------------------------------------------------------------------------------------


def is_data_class(kind: type) -> bool:
    """Return whether instances of a class are data, so that cells may call the class itself."""
    made_of_data = issubclass(kind, _DATA_CLASSES)
    fields = ("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__", "__members__")
    return made_of_data or any(hasattr(kind, each) for each in fields) or _is_model(kind)


def _is_model(kind: type) -> bool:
    return callable(getattr(kind, "model_validate", None))


def refusal(name: str, target: Any) -> ConfigError:
    """Return why an object can't be a tool, and the line that would make it one."""
    names = list(_suggested(target))
    if isinstance(target, types.ModuleType):
        what = "a module"
    elif isinstance(target, type):
        what = "a class, but cells get data, not objects"
    elif _is_standard(type(target)):
        what = f"an object of the built-in type {type(target).__name__}"
    elif len(names) > MAX_METHODS:
        what = f"an object with {len(names)} public methods"
    else:
        what = f"an object of type {type(target).__name__} without public methods"
    if not names:
        return ConfigError(f"tool {name!r} is {what}: pass a function or data instead")
    few = ", ".join(f'"{each}"' for each in names[:_SUGGESTED])
    line = f'tools={{"{name}": {{"tool": {_shown(target, name)}, "expose": [{few}]}}}}'
    return ConfigError(f"tool {name!r} is {what}: name the members that cells may use: {line}")


def _suggested(target: Any) -> Iterator[str]:
    """Yield the names that could be exposed, without reading any attribute of an object."""
    if isinstance(target, types.ModuleType):
        listed = getattr(target, "__all__", None) or vars(target)
        inside = vars(target)
        yield from (
            each for each in listed if _is_public(str(each)) and inspect.isroutine(inside.get(each))
        )
        return
    kind = target if isinstance(target, type) else type(target)
    for member in dict.fromkeys(each for base in kind.__mro__[:-1] for each in vars(base)):
        raw = inspect.getattr_static(kind, member)
        fits = isinstance(raw, staticmethod | classmethod) if kind is target else _is_method(raw)
        if _is_public(member) and fits:
            yield member
    if kind is not target and not any(True for _ in _methods_of(kind)):
        own = getattr(target, "__dict__", {})
        yield from (each for each in own if _is_public(each) and is_data(own[each]))


def _shown(target: Any, name: str = "") -> str:
    """Return a guess at how the caller's program refers to an object."""
    if isinstance(target, types.ModuleType):
        return target.__name__
    return target.__name__ if isinstance(target, type) else name
