"""The cost of one execution of a run, and how much of it the journal will recall."""

from rlm.events import CallEnded, Event, ModelReplied
from rlm.limits import Amount, Budget, Limits, picodollars
from rlm.messages import Usage
from rlm.results import UsageSummary

__all__ = ["RunMeter", "amount_of"]

NO_LIMITS = Limits(max_calls=10**30)


class RunMeter:
    """A recorder, and a ledger between a shared budget and the run's own."""

    def __init__(self, budget: Budget, *, journaled: bool) -> None:
        self.ledger = budget.run(NO_LIMITS)
        self._journaled = journaled
        self.recalled = Amount()
        self._last_words = Amount()

    def record(self, event: Event) -> None:
        if not isinstance(event, ModelReplied | CallEnded) or event.usage is None:
            return
        if isinstance(event, CallEnded) and event.kind == "rlm":
            return  # a child's requests are recorded one by one
        if event.stored:
            self.recalled += amount_of(event.usage)
        elif isinstance(event, ModelReplied) and event.purpose == "final":
            self._last_words += amount_of(event.usage)

    @property
    def was_refused(self) -> bool:
        """Return whether the shared budget refused something."""
        return self.ledger.was_refused_above

    @property
    def unjournaled(self) -> Amount:
        """Return what a resumed run will not recall: abandoned requests and the last replies."""
        used = Amount(0, self.ledger.used.tokens, self.ledger.used.picodollars)
        if not self._journaled:
            return used
        given_up = used - amount_of(UsageSummary.of(self.ledger.usage).total)
        lost = Amount(0, max(0, given_up.tokens), max(0, given_up.picodollars))
        return lost + self._last_words


def amount_of(usage: Usage) -> Amount:
    return Amount(0, usage.total_tokens, picodollars(usage.cost_usd or 0))
