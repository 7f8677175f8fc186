"""The reference engine's path to `IPythonREPL`."""

from rlm.compat.repl import IPythonREPL

__all__ = [
    "IPythonREPL",
]
