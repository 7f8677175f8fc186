"""The reference engine's path to `PortkeyClient`."""

from rlm.compat.clients import PortkeyClient

__all__ = [
    "PortkeyClient",
]
