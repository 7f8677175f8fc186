"""The reference engine's path to `DaytonaREPL`."""

from rlm.compat.repl import DaytonaREPL

__all__ = [
    "DaytonaREPL",
]
