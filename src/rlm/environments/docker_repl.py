"""The reference engine's path to `DockerREPL`."""

from rlm.compat.repl import DockerREPL

__all__ = [
    "DockerREPL",
]
