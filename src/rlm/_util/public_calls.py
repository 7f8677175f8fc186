"""The border of the public interface: a caller's mistakes are reported at the caller's line.

The error for a wrong argument is raised from the public call itself, without the frames below it,
and the error for an unknown name suggests the one that was probably meant.
"""

import asyncio
import functools
import inspect
import sys
import warnings
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from msgspec import Struct

from rlm._util.text import closest

if TYPE_CHECKING:
    from msgspec import StructMeta
else:
    StructMeta = type(Struct)

__all__ = ["SuggestsNames", "check_names", "public_call", "warn_caller"]

OWN = ("rlm", "rlm_runtime")
"""Packages whose frames are not the caller's."""

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def check_names(
    call: str, given: Collection[str], known: Collection[str], inside: dict[str, str] | None = None
) -> None:
    """Raise TypeError for a keyword that a call does not have, and suggest the one probably meant.

    `inside` maps names that belong in another argument to how to write them.
    """
    unknown = [name for name in given if name not in known]
    if not unknown:
        return
    name, inside = unknown[0], inside or {}
    text = f"{call}() got an unexpected keyword argument {name!r}"
    if name in inside:
        raise TypeError(f"{text}: pass {inside[name]}")
    meant = closest(name, (*known, *inside))
    if meant is None:
        raise TypeError(text)
    raise TypeError(f"{text}; did you mean {inside.get(meant, repr(meant))}?")


MAY_BE_SUBCLASSED = 1 << 10
"""Py_TPFLAGS_BASETYPE."""

if TYPE_CHECKING or type(Struct).__flags__ & MAY_BE_SUBCLASSED:

    class SuggestsNames(StructMeta):
        """The metaclass of structs whose constructor suggests the field that a keyword means."""

        def __call__(cls, *positional: Any, **named: Any) -> Any:  # noqa: N805 - a metaclass
            check_names(cls.__name__, named, cls.__struct_fields__)
            try:
                return super().__call__(*positional, **named)
            except TypeError as error:
                if not str(error).startswith("Extra positional"):
                    raise
                first = cls.__struct_fields__[0]
                text = f"{cls.__name__}() accepts only keyword arguments, as in {first}=…"
                raise TypeError(text) from None

else:  # msgspec before 0.20 raises its own errors
    SuggestsNames = StructMeta


def public_call(
    wrong: type[Exception],
    *,
    before: Callable[[Any], None] | None = None,
    argument: str = "context",
    inside: dict[str, str] | None = None,
) -> Callable[[Callable[Arguments, Returned]], Callable[Arguments, Returned]]:
    """Make a function, or a coroutine function, a public call.

    Its unknown keywords get a suggestion, and errors of the class `wrong` are raised from the call.
    `inside` says how to write names that belong in `limits`. `before` gets the value of `argument`
    while the caller's line is on the stack: at the call, not when a coroutine begins. It is not
    called for calls from this package.
    """

    def decorate(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
        signature, name = inspect.signature(function), cast("Any", function).__qualname__
        known = [each for each in signature.parameters if each != "self"]
        takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
        elsewhere = inside if "limits" in known else None
        is_async = inspect.iscoroutinefunction(function)

        @functools.wraps(function)
        def call(*positional: Arguments.args, **named: Arguments.kwargs) -> Any:
            if not takes_any:
                check_names(name, named, known, elsewhere)
            if before is not None and not _is_own(sys._getframe(1)):
                with suppress(TypeError):  # The call below says which arguments are wrong.
                    given = signature.bind_partial(*positional, **named).arguments
                    before(given.get(argument))
            if is_async:
                # Create it when it starts: one cancelled before that would never be awaited.
                return _awaited(lambda: cast("Any", function(*positional, **named)), wrong)
            try:
                return function(*positional, **named)
            except wrong as error:
                raise error.with_traceback(None) from None

        return cast(
            "Callable[Arguments, Returned]", _marked_as_coroutine(call) if is_async else call
        )

    return decorate


async def _awaited(begin: Callable[[], Awaitable[Returned]], wrong: type[Exception]) -> Returned:
    try:
        return await begin()
    except wrong as error:
        raise error.with_traceback(None) from None


def _marked_as_coroutine(call: Callable[..., Any]) -> Callable[..., Any]:
    """Let `iscoroutinefunction` return True, as it would without the decorator."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(call)
    vars(call)["_is_coroutine"] = vars(asyncio.coroutines)["_is_coroutine"]
    return call


def warn_caller(text: str) -> None:
    """Warn about a mistake, at the line outside this package that made the call."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_own(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def _is_own(frame: FrameType) -> bool:
    """Return whether a frame runs code of one of our own packages."""
    return frame.f_globals.get("__name__", "").partition(".")[0] in OWN
