"""What runs of `rlm_complete` are made of: the operator's model, or the client's own."""

import math
from typing import Any

from msgspec import structs

from rlm.api import RLM
from rlm.gateway.desk import DeskClient
from rlm.limits import Limits
from rlm.wiring.resources import Model

__all__ = ["USUAL_LIMITS", "Models"]

USUAL_LIMITS = Limits(max_steps=20, max_calls=200, max_seconds=1_800.0, cell_seconds=60.0)


class Models:
    """How to make an `RLM` for one run.

    `model` None: the client's own model is asked, by sampling. Other options are those of `RLM`;
    `limits` are those of one run, and what a session has left may lower them.
    """

    def __init__(
        self, model: Model | None = None, *, limits: Limits | None = None, **options: Any
    ) -> None:
        self.model = model
        self._limits = limits or USUAL_LIMITS
        self._options = options

    def for_run(
        self, sampler: DeskClient | None, seconds_left: float, cost_usd: float | None
    ) -> RLM:
        """An RLM for one run, which closes it; `sampler` is there if the client's model is asked.

        What a client's own model costs, its owner pays; no money is counted here.
        """
        seconds = min(seconds_left, math.inf if (own := self._limits.max_seconds) is None else own)
        limits = structs.replace(
            self._limits, max_seconds=None if seconds == math.inf else max(seconds, 1.0)
        )
        if sampler is not None:
            # People may have to agree to each call: nobody but the run's own time hurries them.
            patience = max(limits.call_seconds, limits.max_seconds or 0.0)
            limits = structs.replace(limits, max_cost_usd=None, call_seconds=patience)
            return RLM(sampler, limits=limits, **self._options)
        if cost_usd is not None:
            own = math.inf if limits.max_cost_usd is None else limits.max_cost_usd
            limits = structs.replace(limits, max_cost_usd=min(own, cost_usd))
        return RLM(self.model, limits=limits, **self._options)
