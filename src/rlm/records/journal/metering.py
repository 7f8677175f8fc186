"""The cost of one execution of a run, and how much of it was paid by earlier ones."""

import time

from rlm.limits import Amount, Budget, Limits
from rlm.messages import Usage, total_of

__all__ = ["RunMeter"]

NO_LIMITS = Limits(max_calls=10**30)


class RunMeter:
    """A ledger between a shared budget and the run's own.

    `is_counted`: the shared budget has counted what earlier executions of this run have cost.
    """

    def __init__(self, budget: Budget, *, journaled: bool, is_counted: bool) -> None:
        self.ledger = budget.run(NO_LIMITS)
        self.ledger.recalled_counts_above = not is_counted
        self._journaled = journaled

    @property
    def was_refused(self) -> bool:
        """Return whether the shared budget refused something."""
        return self.ledger.was_refused_above

    @property
    def reported(self) -> Usage:
        """Return the usage of the requests that were answered, by this execution or earlier."""
        return total_of(self.ledger.usage.values())

    @property
    def spent(self) -> Amount:
        """Return what all executions have used, or may have been billed for."""
        return Amount(0, self.ledger.used.tokens, self.ledger.used.picodollars)

    @property
    def kept(self) -> Amount:
        """Return the part of `spent` that was not reported."""
        return self.ledger.kept

    @property
    def unjournaled(self) -> Amount:
        """Return what a resumed run would not count again."""
        return Amount() if self._journaled else self.spent

    @property
    def seconds(self) -> float:
        """Return how long ago the execution started."""
        return time.monotonic() - self.ledger.started
