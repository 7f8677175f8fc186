"""Which arguments of a callable are open, and which a `functools.partial` has fixed.

`inspect.signature` alone does not say: it shows what a partial fixed as a keyword with a default,
omits a fixed keyword that the function takes as `**kwargs`, and looks through `functools.wraps`.
"""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

__all__ = ["Presets"]

_MAX_LAYERS = 100
"""Some objects have every attribute, even `__wrapped__`, always an object like themselves."""

_IN_PYTHON = (functools.partialmethod, staticmethod, classmethod, types.FunctionType)

_ANYTHING = inspect.Signature(
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)


class Presets:
    """The `signature` of a callable as it is called, the names `fixed` in it, and its `core`.

    The core is the function or class inside all partials, wrappers and bound methods. The signature
    may still list fixed names; `open_parameters` leaves them out.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.fixed: set[str] = set()
        self.core: Any = function
        self.core_signature = _ANYTHING
        self.signature = self._signature(function, 0)

    def open_parameters(self) -> list[inspect.Parameter]:
        """Return what a caller may still set, all by name unless a name is fixed."""
        positional_only = inspect.Parameter.POSITIONAL_ONLY
        listed = [
            each
            for name, each in self.signature.parameters.items()
            if name not in self.fixed or each.kind is positional_only
        ]
        if any(each.name in self.fixed for each in listed):
            return listed  # A keyword of the same name is fixed: `partial(f, a=1)`, `f(a, /, **k)`.
        by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return [
            each.replace(kind=by_name) if each.kind is positional_only else each for each in listed
        ]

    def _signature(self, function: Any, layer: int) -> inspect.Signature:
        """Return the signature of one layer, made from that of the next layer inside."""
        self.core = function
        if layer > _MAX_LAYERS:
            return _ANYTHING
        shown = getattr(function, "__signature__", None)
        found = self._inside(function, layer)
        if isinstance(shown, inspect.Signature) and not isinstance(function, type):
            return shown
        return found

    def _inside(self, function: Any, layer: int) -> inspect.Signature:
        if isinstance(function, functools.partial):
            return self._preset(function, layer)
        if isinstance(function, types.MethodType):
            return _bound(self._signature(function.__func__, layer + 1))
        if isinstance(function, type):
            return self._signature_of_class(function, layer)
        if (method := _unbound_partial(function)) is not None:
            return self._preset(method, layer)
        if (wrapped := getattr(function, "__wrapped__", None)) is not None:
            return self._signature(wrapped, layer + 1)
        if not inspect.isroutine(function) and (call := _own_call(function)) is not None:
            return self._signature(call, layer + 1)
        self.core_signature = _plain_signature(function)
        return self.core_signature

    def _preset(
        self, preset: "functools.partial[Any] | functools.partialmethod[Any]", layer: int
    ) -> inspect.Signature:
        is_method = isinstance(preset, functools.partialmethod)
        self.fixed.update(preset.keywords)
        inner = self._signature(preset.func, layer + 1)
        args = (None, *preset.args) if is_method else preset.args
        try:
            outer = _after(inner, args, preset.keywords)
        except (TypeError, ValueError):  # More is fixed than the function takes.
            return _ANYTHING
        gone = [each for each in inner.parameters.values() if each.name not in outer.parameters]
        first = gone.pop(0) if is_method and gone else None
        self.fixed.update(each.name for each in gone if each.kind is not each.VAR_POSITIONAL)
        return outer if first is None else _with_first(outer, first)

    def _signature_of_class(self, function: type, layer: int) -> inspect.Signature:
        for name in ("__new__", "__init__"):
            maker = inspect.getattr_static(function, name, None)
            if isinstance(maker, functools.partialmethod | types.FunctionType):
                self._signature(getattr(function, name), layer + 1)
        self.core, self.core_signature = function, _plain_signature(function)
        return self.core_signature


def _plain_signature(function: Any) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # Some builtins have no signature.
        return _ANYTHING


def _after(
    signature: inspect.Signature, args: tuple[Any, ...], keywords: dict[str, Any]
) -> inspect.Signature:
    """Return the rest of a signature when these arguments are given.

    A keyword with the name of a positional-only parameter belongs to `**kwargs`; Python 3.11 does
    not handle that.
    """
    positional_only = {
        name for name, each in signature.parameters.items() if each.kind is each.POSITIONAL_ONLY
    }
    others = {name: each for name, each in keywords.items() if name not in positional_only}
    return inspect.signature(functools.partial(_with(signature), *args, **others))


def _bound(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature without the parameter that a method is bound to."""
    return _plain_signature(types.MethodType(_with(signature), object()))


def _with(signature: inspect.Signature) -> Callable[..., None]:
    def stand_in(*args: Any, **kwargs: Any) -> None: ...

    vars(stand_in)["__signature__"] = signature
    return stand_in


def _with_first(signature: inspect.Signature, first: inspect.Parameter) -> inspect.Signature:
    """Put back a method's `self`, which a `partialmethod` does not fix."""
    if first.kind is not first.VAR_POSITIONAL:
        first = first.replace(kind=first.POSITIONAL_ONLY, default=first.empty)
        rest = [each for each in signature.parameters.values() if each.name != first.name]
        return signature.replace(parameters=[first, *rest])
    return signature


def _unbound_partial(function: Any) -> "functools.partialmethod[Any] | None":
    """Return the `partialmethod` behind the function that a class shows instead."""
    for name in ("__partialmethod__", "_partialmethod"):  # Python 3.13 renamed it.
        found = getattr(function, name, None)
        if isinstance(found, functools.partialmethod):
            return found
    return None


def _own_call(instance: Any) -> Any:
    """Return the `__call__` that a Python class gives its instances, bound to one of them."""
    call = inspect.getattr_static(type(instance), "__call__", None)
    if call is None or (inspect.ismethoddescriptor(call) and not isinstance(call, _IN_PYTHON)):
        return None
    bind = getattr(type(call), "__get__", None)
    return call if bind is None else bind(call, instance, type(instance))
