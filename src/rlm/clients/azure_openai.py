"""The reference engine's path to `AzureOpenAIClient`."""

from rlm.compat.clients import AzureOpenAIClient

__all__ = [
    "AzureOpenAIClient",
]
