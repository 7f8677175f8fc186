"""Convert the arguments of a cell to those of a function: show, bind and convert parameters."""

import functools
import inspect
import itertools
import re
import sys
import types
import typing
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec.inspect import (
    CustomType,
    DataclassType,
    DictType,
    StructType,
    Type,
    TypedDictType,
    UnionType,
    type_info,
)

from rlm.tools import _schemas
from rlm.tools._presets import Presets
from rlm.tools._schemas import is_pydantic
from rlm.worker import tagged

__all__ = ["DICT_HINT", "POSITIONAL", "Parameters", "body_of", "summary"]

POSITIONAL = "*"
"""The key under which the worker sends positional arguments, as a list."""

_SHOWN_DEFAULTS = (type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset)
_MODULES = re.compile(r"""('[^']*'|"[^"]*")|(?:[\w<>]+\.)+""")
DICT_HINT = (
    " (a single dict is read as named arguments; to pass a dict as a value, write {}={{...}})"
)
_DICT_LIKE = (DataclassType, DictType, StructType, TypedDictType)
_QUICK = (Any, str, int, float, bool, bytes)
_MAX_DEFAULT_CHARS = 40
_MAX_TYPE_CHARS = 80
_MAX_SUMMARY_CHARS = 500
_UNRESOLVABLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    NameError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""The errors that evaluating an annotation may raise."""


class Parameters:
    """The parameters of a callable, all of which can be given by name.

    What a `functools.partial` has fixed is neither shown nor accepted, under any name.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        presets = Presets(function)
        names = _names_around(presets.core)
        presets.fixed |= _aliases(presets, names)
        self._fixed = frozenset(presets.fixed)
        self._signature, self._defaults = _unfolded(_open_signature(presets))
        full = {
            name: _resolved(parameter.annotation, names)
            for name, parameter in self._signature.parameters.items()
        }
        self._validators = {name: _schemas.validator_of(kind) for name, kind in full.items()}
        self._types = {name: _convertible(kind) for name, kind in full.items()}
        self.quick = all(
            validate is None and kind in _QUICK
            for kind, validate in zip(self._types.values(), self._validators.values(), strict=True)
        )
        """Whether binding is always fast and runs no foreign code."""
        self.shown = _format_signature(self._signature, names)
        self.notes = {name: text for name, kind in full.items() if (text := _note(kind))}

    def bind(self, arguments: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and named arguments for the call; an error says what does not fit."""
        named = dict(arguments)
        positional = named.pop(POSITIONAL, [])
        if not isinstance(positional, list):
            raise TypeError(f"{POSITIONAL!r} must contain a list of positional arguments")
        try:
            bound = self._bound(positional, named)
        except TypeError as error:
            if not self._may_be_one_dict(arguments):
                raise
            if not self._is_one_dict(arguments):
                raise TypeError(f"{error}{DICT_HINT.format(next(iter(self._types)))}") from None
            bound = self._signature.bind(arguments)
        for name, value in bound.arguments.items():
            bound.arguments[name] = self._converted(name, value)
        for name, value in self._defaults.items():
            bound.arguments.setdefault(name, value)
        return bound.args, bound.kwargs

    def _bound(self, positional: list[Any], named: dict[str, Any]) -> inspect.BoundArguments:
        """Bind the arguments to their parameters; `**kwargs` must not accept what is fixed."""
        if taken := sorted(self._fixed.intersection(named)):
            raise TypeError(f"{taken[0]!r} is fixed for this tool and can't be passed")
        return self._signature.bind(*positional, **named)

    def _may_be_one_dict(self, arguments: dict[str, Any]) -> bool:
        """Return whether no name is a parameter: the worker sends a lone dict as names."""
        if POSITIONAL in arguments or not self._types.keys().isdisjoint(arguments):
            return False
        return any(_takes_dict(wanted) for wanted in itertools.islice(self._types.values(), 1))

    def _is_one_dict(self, arguments: dict[str, Any]) -> bool:
        """Return whether a dict was certainly meant; a misspelt keyword must not look like one."""
        wanted = next(iter(self._types.values()))
        if wanted is Any:
            return False
        values = list(arguments.values())
        looks_misspelt = len(values) == 1 and isinstance(values[0], dict)
        return is_pydantic(wanted) or not looks_misspelt

    def _converted(self, name: str, value: Any) -> Any:
        convert = functools.partial(_convert, self._types[name], self._validators[name])
        kind = self._signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            return tuple(convert(each, f"*{name}") for each in value)
        if kind is inspect.Parameter.VAR_KEYWORD:
            return {key: convert(each, key) for key, each in value.items()}
        return convert(value, name)


def summary(function: Any) -> str:
    """Return the first paragraph of a callable's docstring."""
    inner = _inside(function)
    if isinstance(inner, type):
        text = inspect.cleandoc(vars(inner).get("__doc__") or "")
    elif inspect.isroutine(inner):
        text = inspect.getdoc(inner) or ""
    else:
        own = type(inner).__call__.__doc__ or type(inner).__doc__ or ""
        text = inspect.cleandoc(own)
    first = " ".join(text.strip().split("\n\n")[0].split())
    return first if len(first) <= _MAX_SUMMARY_CHARS else first[: _MAX_SUMMARY_CHARS - 1] + "…"


def body_of(function: Any) -> Any:
    """Return what actually runs: the function in a partial, an object's `__call__`, a class."""
    inner = _inside(function)
    is_named = inspect.isroutine(inner) or isinstance(inner, type)
    return inner if is_named else type(inner).__call__


def _inside(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _note(annotation: Any) -> str:
    """Return what a reader needs to know about a parameter besides its type."""
    return ", ".join(filter(None, (_schemas.described(annotation), _schemas.shape_of(annotation))))


def _unfolded(signature: inspect.Signature) -> tuple[inspect.Signature, dict[str, Any]]:
    """Return the signature without `Field(...)` defaults, and the defaults they stood for."""
    parameters = {name: _schemas.unfolded(each) for name, each in signature.parameters.items()}
    defaults = {
        name: each.default
        for name, each in parameters.items()
        if each is not signature.parameters[name] and each.default is not each.empty
    }
    return signature.replace(parameters=list(parameters.values())), defaults


def _open_signature(presets: Presets) -> inspect.Signature:
    """Return what a caller may set, without the return type of a class."""
    signature = presets.signature
    returns = signature.return_annotation
    if isinstance(presets.core, type):
        returns = signature.empty
    return signature.replace(parameters=presets.open_parameters(), return_annotation=returns)


def _aliases(presets: Presets, names: dict[str, Any]) -> set[str]:
    """Return further names under which pydantic would accept what is fixed."""
    parameters = {
        name: _resolved(_schemas.unfolded(each).annotation, names)
        for name, each in presets.core_signature.parameters.items()
    }
    found: set[str] = set()
    for keys in _schemas.names_by_field(presets.core, parameters):
        if not presets.fixed.isdisjoint(keys):
            found |= keys
    return found


class _Text:
    """Stands for an annotation or a default while a signature is printed."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _format_signature(signature: inspect.Signature, names: dict[str, Any]) -> str:
    """Return a readable signature: short names of types, no long defaults."""
    shown = []
    for parameter in signature.parameters.values():
        if parameter.annotation is not parameter.empty:
            plain = _without_extras(parameter.annotation, names)
            parameter = parameter.replace(annotation=_Text(_type_text(plain)))
        if parameter.default is not parameter.empty:
            parameter = parameter.replace(default=_Text(_default_text(parameter.default)))
        shown.append(parameter)
    returns = signature.return_annotation
    if returns is not signature.empty:
        returns = _Text(_type_text(_without_extras(returns, names)))
    return str(inspect.Signature(shown, return_annotation=returns))


def _without_extras(annotation: Any, names: dict[str, Any]) -> Any:
    """Return the annotation without what `Annotated` adds, at any depth."""
    text = annotation if isinstance(annotation, str) else repr(annotation)
    if "Annotated[" not in text:
        return annotation
    plain = _resolved(annotation, names, extras=False)
    return annotation if plain is Any else plain


def _type_text(annotation: Any) -> str:
    if isinstance(annotation, str):
        text = annotation
    elif annotation is None or annotation is type(None):
        text = "None"
    elif isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        text = annotation.__name__
    elif typing.get_origin(annotation) is typing.Annotated:
        return _type_text(typing.get_args(annotation)[0])
    else:
        text = _MODULES.sub(lambda found: found[1] or "", repr(annotation))
    return _cut(" ".join(text.split()), _MAX_TYPE_CHARS)


def _default_text(default: Any) -> str:
    """Return short literals; the text of other objects says little and may contain a path."""
    if type(default) not in _SHOWN_DEFAULTS:
        return "..."
    try:
        return _cut(repr(default), _MAX_DEFAULT_CHARS)
    except (RecursionError, ValueError):
        return "..."


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _names_around(function: Any) -> dict[str, Any]:
    """Return the globals in which the annotations of a function or class were written."""
    if isinstance(function, type):
        return vars(sys.modules.get(function.__module__, typing))
    found = getattr(function, "__globals__", None)
    return found if isinstance(found, dict) else {}


def _resolved(annotation: Any, names: dict[str, Any], *, extras: bool = True) -> Any:
    if annotation is inspect.Parameter.empty:
        return Any
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, names, include_extras=extras)["it"]
    except _UNRESOLVABLE:
        return Any


def _convertible(annotation: Any) -> Any:
    """Return the annotation, or Any (no conversion) if JSON has no form for it."""
    if annotation is Any or is_pydantic(annotation):
        return annotation
    try:
        return Any if _is_foreign(type_info(annotation)) else annotation
    except _UNRESOLVABLE:
        return Any


def _is_foreign(info: Type) -> bool:
    if isinstance(info, UnionType):
        return any(map(_is_foreign, info.types))
    if not isinstance(info, CustomType):
        return False
    return not is_pydantic(info.cls) and not issubclass(info.cls, PurePath)


def _takes_dict(wanted: Any) -> bool:
    return wanted is Any or is_pydantic(wanted) or isinstance(type_info(wanted), _DICT_LIKE)


def _convert(wanted: Any, validate: Callable[[Any], Any] | None, value: Any, name: str) -> Any:
    if wanted is Any and validate is None:
        return value
    if wanted is float and type(value) is int:
        return value  # A Python function accepts an int unchanged.
    if validate is None:
        validate = functools.partial(msgspec.convert, type=wanted, strict=False, dec_hook=_decoded)
    try:
        try:
            return validate(value)
        except (ValueError, TypeError):  # Valid as JSON is good enough, such as {1: "a"}.
            in_json = tagged.plain_json(value)
            if in_json == value:
                raise
            return validate(in_json)
    except Exception as error:  # A caller's validator may raise anything.
        error.add_note(f"argument {name!r}")
        raise


def _decoded(kind: Any, value: Any) -> Any:
    if is_pydantic(kind):
        return kind.model_validate(value)
    return kind(value) if issubclass(kind, PurePath) else value
