"""Requests and tokens per minute, exactly: no 60 seconds ever contain more than the limit.

A gate remembers what passed in the last minute. A request counts as the most tokens it can use
until its reply reports what it really used.
"""

import math
from collections import deque

from msgspec import Struct

from rlm._util.public_calls import SuggestsNames
from rlm.errors import ConfigError

__all__ = ["Charge", "RateGate", "RateLimit"]

MINUTE_SECONDS = 60.0


class RateLimit(Struct, metaclass=SuggestsNames, frozen=True):
    """How much a provider or model may be sent per minute; None means no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
            if value is not None and not is_count:
                raise ConfigError(f"{name} must be a positive integer, not {value!r}")


class Charge:
    """What one request counts for during the minute after it was admitted."""

    __slots__ = ("at", "counted", "settled", "tokens")

    def __init__(self, at: float, tokens: int) -> None:
        self.at = at
        self.tokens = tokens
        self.settled = False
        self.counted = True


class RateGate:
    """A gate that admits requests as fast as one `RateLimit` allows. Time is an argument."""

    def __init__(self, name: str, limit: RateLimit) -> None:
        self.name = name
        self.limit = limit
        self._charges: deque[Charge] = deque()
        self._tokens = 0
        self._settled_tokens = 0

    def ready_at(self, now: float, tokens: int) -> float:
        """Return when a request with this many tokens may pass if nothing changes, or `now`."""
        self._forget(now)
        ready = max(now, self._requests_ready_at())
        return max(ready, self._tokens_ready_at(tokens, self._tokens, hopeful=False))

    def earliest(self, now: float, tokens: int) -> float:
        """Return when it may pass at best: if all pending requests turn out to use no tokens."""
        self._forget(now)
        ready = max(now, self._requests_ready_at())
        return max(ready, self._tokens_ready_at(tokens, self._settled_tokens, hopeful=True))

    def take(self, now: float, tokens: int) -> Charge:
        """Count a request that passes now."""
        charge = Charge(now, self._counting(tokens))
        self._charges.append(charge)
        self._tokens += charge.tokens
        return charge

    def correct(self, charge: Charge, tokens: int) -> None:
        """Replace the bound of a request with its actual usage, once known."""
        if charge.counted and not charge.settled:
            self._tokens += tokens - charge.tokens
            self._settled_tokens += tokens
            charge.tokens = tokens
            charge.settled = True

    def _counting(self, tokens: int) -> int:
        """Cap the tokens of a request that exceeds the limit by itself; it gets its own minute."""
        most = self.limit.tokens_per_minute
        return tokens if most is None else min(tokens, most)

    def _forget(self, now: float) -> None:
        while self._charges and self._charges[0].at + MINUTE_SECONDS <= now:
            gone = self._charges.popleft()
            gone.counted = False
            self._tokens -= gone.tokens
            self._settled_tokens -= gone.tokens if gone.settled else 0

    def _requests_ready_at(self) -> float:
        most = self.limit.requests_per_minute
        if most is None or len(self._charges) < most:
            return -math.inf
        return self._charges[len(self._charges) - most].at + MINUTE_SECONDS

    def _tokens_ready_at(self, tokens: int, taken: int, *, hopeful: bool) -> float:
        most = self.limit.tokens_per_minute
        if most is None:
            return -math.inf
        excess = taken + self._counting(tokens) - most
        if excess <= 0:
            return -math.inf
        for charge in self._charges:
            if charge.settled or not hopeful:
                excess -= charge.tokens
            if excess <= 0:
                return charge.at + MINUTE_SECONDS
        return -math.inf
