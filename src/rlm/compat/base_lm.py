"""The reference's base class for a model of your own.

It is apart from the clients, because every `RLM` looks whether it was given one.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlm.compat.types import ModelUsage, UsageTotals

__all__ = ["DEFAULT_TIMEOUT", "BaseLM"]

DEFAULT_TIMEOUT = 300.0
"""Seconds that a request may take, unless `timeout` says otherwise."""


class BaseLM(ABC):
    """Your own model: subclass this and pass an instance to `RLM`.

    `completion` gets a text, or a list of messages with `role` and `content`, and returns a text.
    It is called in a thread. `acompletion` is called only if `completion` raises
    NotImplementedError. What `get_usage_summary` counts is billed.
    """

    def __init__(
        self,
        model_name: str,
        timeout: float = DEFAULT_TIMEOUT,
        sampling_args: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.model_name = model_name
        self.timeout = timeout
        self.sampling_args: dict[str, Any] = dict(sampling_args or {})
        self.kwargs = kwargs

    def __call__(self, prompt: Any) -> str:
        """Answer a prompt: a model may be any function that does."""
        return self.completion(prompt)

    @abstractmethod
    def completion(self, prompt: Any) -> str:
        """Answer a prompt."""

    @abstractmethod
    async def acompletion(self, prompt: Any) -> str:
        """Answer a prompt, in an event loop."""

    @abstractmethod
    def get_usage_summary(self) -> "UsageTotals":
        """Return what all requests so far have used."""

    @abstractmethod
    def get_last_usage(self) -> "ModelUsage":
        """Return what the last request used."""
