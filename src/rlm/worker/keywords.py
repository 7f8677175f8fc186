"""Keywords that models mix up: what they call an argument becomes what the function calls it."""

from __future__ import annotations

__all__ = ["parameters", "renamed"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ALIASES = (
    ("prompt", "query", "text", "question"),
    ("prompts", "queries", "texts"),
    ("context", "chunk"),
    ("contexts", "chunks"),
    ("images", "image", "pictures"),
)


def parameters(function: Any) -> tuple[str, ...]:
    """The names a function can be called with; none if it takes any (`inspect` is slow to load)."""
    code = function.__code__
    takes_any = code.co_flags & 0x08
    return () if takes_any else code.co_varnames[: code.co_argcount]


def renamed(named: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Give aliased keywords the name the function uses."""
    if not named or not known:
        return named
    result: dict[str, Any] = {}
    for name, value in named.items():
        group = next((group for group in _ALIASES if name in group), ())
        target = name if name in known else next((n for n in group if n in known), name)
        if target in result:
            raise TypeError(f"{target!r} is given twice, the second time as {name!r}")
        result[target] = value
    return result
