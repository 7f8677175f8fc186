"""The reference engine's path to requests to an `LMHandler`."""

from rlm.compat.handlers import LMRequest, LMResponse, send_lm_request, send_lm_request_batched

__all__ = [
    "LMRequest",
    "LMResponse",
    "send_lm_request",
    "send_lm_request_batched",
]
