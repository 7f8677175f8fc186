"""Which model runs of `rlm_complete` use: the operator's, or the client's own."""

import math
from typing import Any

from msgspec import structs

from rlm.api import RLM
from rlm.gateway.callers import SamplingClient
from rlm.limits import Limits
from rlm.wiring.resources import Model

__all__ = ["DEFAULT_LIMITS", "Models"]

DEFAULT_LIMITS = Limits(max_steps=20, max_calls=200, max_seconds=1_800.0, cell_seconds=60.0)


class Models:
    """Makes an `RLM` for one run.

    `model=None`: ask the client's own model, by sampling. Other options are those of `RLM`;
    `limits` apply to one run, and the time that a session has left may lower them.
    """

    def __init__(
        self, model: Model | None = None, *, limits: Limits | None = None, **options: Any
    ) -> None:
        self.model = model
        self._limits = limits or DEFAULT_LIMITS
        self._options: dict[str, Any] = {
            "strategy": "rlm",
            "preview_chars": 0,
            "journal": False,
            **options,
        }

    def for_run(self, sampler: SamplingClient | None, seconds_left: float) -> RLM:
        """Return an RLM for one run; `sampler` is given if the client's model is asked.

        The client pays for its own model, so no money is counted then.
        """
        seconds = min(seconds_left, math.inf if (own := self._limits.max_seconds) is None else own)
        limits = structs.replace(
            self._limits, max_seconds=None if seconds == math.inf else max(seconds, 1.0)
        )
        if sampler is not None:
            # A person may have to approve each call, so only the run's own time limits it.
            patience = max(limits.call_seconds, limits.max_seconds or 0.0)
            limits = structs.replace(limits, max_cost_usd=None, call_seconds=patience)
            return RLM(sampler, limits=limits, **self._options)
        return RLM(self.model, limits=limits, **self._options)
