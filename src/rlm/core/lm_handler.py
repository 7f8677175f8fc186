"""The reference engine's path to `LMHandler`."""

from rlm.compat.handlers import LMHandler

__all__ = [
    "LMHandler",
]
