"""The reference engine's path to `ModalREPL`."""

from rlm.compat.repl import ModalREPL

__all__ = [
    "ModalREPL",
]
