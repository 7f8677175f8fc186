"""What an adapter of your own may return; any object with `complete(messages)` is one."""

from rlm.clients.completing import ModelResponse
from rlm.clients.completing import TokenUsage as Usage

__all__ = ["ModelResponse", "Usage", "estimate_usage"]
estimate_usage = Usage.estimated
