"""The reference engine's path to `E2BREPL`."""

from rlm.compat.repl import E2BREPL

__all__ = [
    "E2BREPL",
]
