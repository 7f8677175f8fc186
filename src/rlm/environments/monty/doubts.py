"""Whose fault it is that a cell did not run: the user's, or that monty is not all of Python."""

import builtins
import re
import sys
from typing import NamedTuple

from rlm.environments.monty.reports import Ending
from rlm.environments.monty.tracebacks import Raised

__all__ = ["Doubt", "NeedsPython", "doubt_about"]

_SURELY_THEIRS = frozenset(
    {"AssertionError", "IndexError", "KeyError", "KeyboardInterrupt", "MemoryError"}
    | {"RecursionError", "StopIteration", "ZeroDivisionError"}
)

_ATTRIBUTE = re.compile(
    r"(?:type object )?'(?P<type>\w+)'(?: object)? has no attribute '(?P<name>\w+)'"
)
_NAME = re.compile(r"name '(?P<name>\w+)' is not defined")
_MODULE = re.compile(r"No module named '(?P<name>\w+)")


class NeedsPython(Exception):
    """The text names what monty lacks; nothing of the cell has run."""


class Doubt(NamedTuple):
    """An error that may be monty's and not the user's, and the state before the cell.

    `is_settled`: it is monty's for certain, and the cell must not be run a second time.
    """

    kind: str
    before: bytes | None
    is_settled: bool


def doubt_about(ending: Ending, *, has_asked: bool) -> Doubt | None:
    """What full Python should be asked about; None if the error is clear, or there is none.

    A cell that has asked the host something is not run again, so only what is certain counts.
    """
    raised = ending.raised
    if raised is None or raised.type in _SURELY_THEIRS:
        return None
    if raised.type == "NameError" and not _is_monty(raised):
        return None
    if has_asked and not _is_monty(raised):
        return None
    return Doubt(raised.type, ending.before, has_asked)


def _is_monty(raised: Raised) -> bool:
    """Whether the error is about something that full Python has for certain."""
    if raised.type == "NotImplementedError":
        return "monty" in raised.message
    if found := _ATTRIBUTE.match(raised.message):
        kind = getattr(builtins, found["type"], None)
        return isinstance(kind, type) and hasattr(kind, found["name"])
    if found := _NAME.match(raised.message):
        return hasattr(builtins, found["name"])
    if found := _MODULE.match(raised.message):
        return found["name"] in sys.stdlib_module_names
    return False
