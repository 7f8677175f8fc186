"""The reference engine's path to `LocalREPL`."""

from rlm.compat.repl import LocalREPL

__all__ = [
    "LocalREPL",
]
