"""The reference engine's path to `VerbosePrinter`."""

from rlm.compat.verbose import VerbosePrinter

__all__ = [
    "VerbosePrinter",
]
