"""The reference engine's path to `RLMLogger`."""

from rlm.logger import RLMLogger

__all__ = [
    "RLMLogger",
]
