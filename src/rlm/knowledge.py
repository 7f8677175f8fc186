"""What is known about models by name: window, price and profile."""

from rlm.messages import ModelInfo

__all__ = ["about"]


def about(provider: str, model: str) -> ModelInfo:
    """What is known of a provider's model; of an unknown one, that nothing is."""
    return ModelInfo()
