"""What a cell shows and leaves behind: the echo, the user's variables, the state of `answer`."""

import json as _rlm_json
from typing import Any

from rlm.environments.monty.inside.given import _rlm_max_chars

__all__ = ["SHOW_VARS"]

# -- sent from here --

_rlm_ours: dict[str, int] = {}
_rlm_names: list[str] = []
_rlm_sized = ("str", "bytes", "list", "tuple", "dict", "set", "frozenset", "range")
_rlm_also_sized = ("Counter", "defaultdict", "deque", "OrderedDict")


def _rlm_as_json(value: Any) -> str | None:
    try:
        return _rlm_json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None


def _rlm_echo(value: Any) -> None:
    """Show the value of a cell's last expression, as a notebook does."""
    if value is None:
        return
    text = repr(value[:20000]) if type(value) is str else repr(value)
    if len(text) > 20000:
        text = text[:20000] + " ..."
    print(text)


def _rlm_size(value: Any) -> int:
    """The length of a built-in container; -1 for everything else."""
    kind = type(value).__name__
    return len(value) if kind in _rlm_sized or kind in _rlm_also_sized else -1


def _rlm_users_own(names: dict[str, Any]) -> list[tuple[str, Any]]:
    """The user's bindings: no private names, no modules, and nothing of the REPL.

    Calls are slow in monty and most names are ours, so it is all in one expression.
    """
    return [
        (name, value)
        for name, value in names.items()
        if name[0] != "_"
        and _rlm_ours.get(name) != id(value)
        and type(value).__name__ != "module"
        and (name != "answer" or not isinstance(value, dict))
    ]


def _rlm_report(names: dict[str, Any], with_answer: bool = True) -> list[Any]:
    """The user's variables as [name, type, length, identity], and what `answer` holds."""
    rows = [
        [name, type(value).__name__, _rlm_size(value), id(value)]
        for name, value in _rlm_users_own(names)
    ]
    return [rows, _rlm_answer(names.get("answer")) if with_answer else None]


def _rlm_answer(value: Any) -> list[Any] | None:
    """[content, whether it is ready, its JSON], or None if there is no content."""
    if not isinstance(value, dict):
        return None
    content = value.get("content")
    if content is None or content == "":
        return None
    ready = bool(value.get("ready"))
    text = str(content)
    if len(text) > _rlm_max_chars:
        return [text[:_rlm_max_chars], ready, None, len(text)]
    return [text, ready, _rlm_as_json(content) if ready else None, len(text)]


def _rlm_note_ours(names: dict[str, Any]) -> None:
    """Remember which bindings are the REPL's."""
    for name in names:
        _rlm_ours[name] = id(names[name])


def _rlm_value_of(_rlm_name: str) -> Any:
    """The value of a global name; its own parameter must not be in the way."""
    return eval(_rlm_name)  # noqa: S307


def _rlm_variables() -> dict[str, Any]:
    """The user's variables in the middle of a cell, as far as they can be known."""
    found: dict[str, Any] = {}
    for name in _rlm_names:
        try:
            found[name] = _rlm_value_of(name)
        except NameError:
            continue
    return {name: value for name, value in _rlm_users_own(found)}  # noqa: C416


class _RlmShown:
    """A text that reads the same printed and echoed."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


def SHOW_VARS() -> _RlmShown:  # noqa: N802
    lines = []
    for name, value in _rlm_variables().items():
        size = _rlm_size(value)
        kind = type(value).__name__
        lines.append(f"{name}: {kind}" if size < 0 else f"{name}: {kind}[{size}]")
    return _RlmShown("\n".join(lines) or "(no variables yet)")
