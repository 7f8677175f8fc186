"""The reference engine's path to `BaseLM` and `get_client`."""

from rlm.compat.clients import DEFAULT_TIMEOUT, BaseLM, get_client

__all__ = [
    "DEFAULT_TIMEOUT",
    "BaseLM",
    "get_client",
]
