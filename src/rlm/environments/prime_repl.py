"""The reference engine's path to `PrimeREPL`."""

from rlm.compat.repl import PrimeREPL

__all__ = [
    "PrimeREPL",
]
