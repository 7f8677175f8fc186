"""The reference engine's path to `OpenAIClient`, beside our own client."""

from rlm.clients.compatible import OpenAICompatClient, azure_address
from rlm.compat.clients import OpenAIClient

__all__ = [
    "OpenAIClient",
    "OpenAICompatClient",
    "azure_address",
]
