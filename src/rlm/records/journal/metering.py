"""The cost of one execution of a run, and how much of it was paid by earlier ones."""

import time

from rlm.limits import Amount, Budget, Limits, amount_of
from rlm.messages import Usage
from rlm.results import UsageSummary

__all__ = ["RunMeter"]

NO_LIMITS = Limits(max_calls=10**30)


class RunMeter:
    """A ledger between a shared budget and the run's own."""

    def __init__(self, budget: Budget, *, journaled: bool) -> None:
        self.ledger = budget.run(NO_LIMITS)
        self._journaled = journaled

    @property
    def recalled(self) -> Amount:
        """Return what earlier executions had paid and this one has counted again."""
        return self.ledger.recalled

    @property
    def was_refused(self) -> bool:
        """Return whether the shared budget refused something."""
        return self.ledger.was_refused_above

    @property
    def total(self) -> Usage:
        """Return the usage of the requests that were answered, by this execution or earlier."""
        return UsageSummary.of(self.ledger.usage).total

    @property
    def used(self) -> Amount:
        """Return the tokens and money that count, with those of abandoned requests."""
        return Amount(0, self.ledger.used.tokens, self.ledger.used.picodollars)

    @property
    def abandoned(self) -> Amount:
        """Return the most that requests whose replies never came may have cost."""
        lost = self.used - amount_of(self.total)
        return Amount(0, max(0, lost.tokens), max(0, lost.picodollars))

    @property
    def unjournaled(self) -> Amount:
        """Return what the journal does not hold: requests that were abandoned."""
        return self.abandoned if self._journaled else self.used

    @property
    def seconds(self) -> float:
        """Return how long ago the execution started."""
        return time.monotonic() - self.ledger.started
