"""Values on their way out, to a session of full Python: nothing may change its type unnoticed.

monty hands many values to the host as text (`range(3)`, functions, patterns) or as the nearest
plain type (a Counter becomes a dict), so what may go is decided here, by exact types.
"""

from typing import Any

__all__: list[str] = []

# -- sent from here --

_rlm_leaves = ("NoneType", "bool", "int", "float", "complex", "str", "bytes", "ellipsis")
_rlm_more_leaves = ("date", "datetime", "time", "timedelta", "timezone", "Decimal")
_rlm_holders = ("list", "tuple", "set", "frozenset")


def _rlm_weight(value: Any, depth: int = 0) -> int:
    """About how many bytes a value takes on its way; ValueError names what can't go."""
    kind = type(value).__name__
    if kind == "str" or kind == "bytes":
        return len(value) + 16
    if kind in _rlm_leaves or kind in _rlm_more_leaves:
        return 16
    if depth > 100:
        raise ValueError("it is nested too deeply")
    if kind in _rlm_holders:
        return _rlm_weight_of_all(value, depth)
    if kind == "dict":
        return _rlm_weight_of_all(list(value), depth) + _rlm_weight_of_all(
            list(value.values()), depth
        )
    raise ValueError(f"a value of type {kind} can't be carried")


def _rlm_weight_of_all(items: Any, depth: int) -> int:
    """The same for many; a million of one type must not take seconds, and calls are slow."""
    kinds = {type(item).__name__ for item in items}
    if kinds == {"str"}:
        return sum([len(item) for item in items]) + 16 * len(items)
    if all(kind in _rlm_leaves and kind != "bytes" and kind != "str" for kind in kinds):
        return 16 * len(items) + 16
    return sum([_rlm_weight(item, depth + 1) for item in items]) + 16


def _rlm_packed(value: Any) -> list[Any]:
    """[kind, plain value, weight] of a variable; of what is not plain, only a few kinds go."""
    kind = type(value).__name__
    if kind == "Counter":
        plain: Any = dict(value)
    elif kind == "list" and any(type(item).__name__ == "FailedReply" for item in value):
        kind = "replies"
        plain = [
            [True, each.reason] if type(each).__name__ == "FailedReply" else [False, each]
            for each in value
        ]
    else:
        kind, plain = "plain", value
    return [kind, plain, _rlm_weight(plain)]


def _rlm_weigh(name: str, value: Any) -> list[Any]:
    """[name, weight, why it can't go]."""
    try:
        return [name, _rlm_packed(value)[2], ""]
    except (ValueError, AttributeError, RecursionError) as error:
        return [name, 0, str(error)]
