"""What the turns of a chat used, what is left of its limits, and their messages."""

from typing import Any

from msgspec.structs import replace

from rlm.errors import CallRefused, ConfigError
from rlm.events import ModelAsked, ModelReplied
from rlm.limits import Budget, Limits, usage_of
from rlm.messages import Usage, total_of
from rlm.results import RunResult

__all__ = ["Spending", "messages_in"]


class Spending:
    """What all turns of a chat have used and may use together: `max_tokens`, `max_cost_usd`.

    `used` is what replies reported, `kept` what requests without a reply may have cost. The limits
    count both.
    """

    def __init__(
        self,
        of_a_run: Limits | None = None,
        *,
        max_tokens: int | None = None,
        max_cost_usd: float | None = None,
    ) -> None:
        # Limits raises for invalid values.
        self._all = Limits(max_tokens=max_tokens, max_cost_usd=max_cost_usd)
        self._of_a_run = of_a_run or Limits()
        self.used = Usage()
        self.kept = Usage()

    def note(self, used: Usage, kept: Usage) -> None:
        self.used += used
        self.kept += kept

    def count(self, budget: Budget) -> None:
        """Count a turn that has ended, however it did."""
        self.note(total_of(budget.usage.values()), usage_of(budget.kept))

    def limits_left(self) -> Limits | None:
        """Return the limits of the next run; None if the chat has no limits."""
        tokens, money = self._all.max_tokens, self._all.max_cost_usd
        if tokens is None and money is None:
            return None
        limits = self._of_a_run
        if tokens is not None:
            kept_tokens = self.kept.total_tokens
            left = tokens - self.used.total_tokens - kept_tokens
            if left <= 0:
                kept = f"{kept_tokens:,}" if kept_tokens else ""
                raise _used_up(f"all {tokens:,} tokens", kept, "tokens", "max_tokens")
            limits = replace(limits, max_tokens=min(left, limits.max_tokens or left))
        if money is not None:
            kept_usd = self.kept.cost_usd or 0.0
            usd = round(money - _known_cost(self.used) - kept_usd, 12)
            if usd <= 0:
                kept = f"${kept_usd:.6f}" if kept_usd else ""
                raise _used_up(f"all ${money:g}", kept, "cost_usd", "max_cost_usd")
            limits = replace(limits, max_cost_usd=min(usd, limits.max_cost_usd or usd))
        return limits


def _known_cost(used: Usage) -> float:
    if used.cost_usd is None and used.requests:
        raise ConfigError(
            "what this chat has cost is unknown, so max_cost_usd can't be enforced: pass prices="
        )
    return used.cost_usd or 0.0


def _used_up(what: str, kept: str, limit: str, name: str) -> CallRefused:
    failed = f" ({kept} of it may have been billed for requests that failed)" if kept else ""
    return CallRefused(
        f"{what} of this chat are used{failed}: save it and load it with a larger {name}, "
        "or start another",
        limit=limit,
    )


def messages_in(result: RunResult) -> list[dict[str, Any]]:
    """Return the messages of a run in the form of the reference engine."""
    found: list[dict[str, Any]] = []
    last = None
    for event in result.events:
        if event.run_id != result.run_id:
            continue
        if isinstance(event, ModelAsked) and event.purpose != "compaction":
            found += [{"role": m.role, "content": m.content} for m in event.new_messages]
        elif isinstance(event, ModelReplied) and event.error is None:
            last = {"role": "assistant", "content": event.text}
    return found if last is None else [*found, last]
