"""What a run may use (`Limits`, a frozen value) and what its tree has used (`Budget`).

A request is sent only after its whole possible cost has been reserved: the most tokens its input
can have (calls/billing.py), plus the output cap that is always sent. Settling replaces this bound
with the actual usage. The budget of a child draws on that of its parent, so a limit applies to the
whole tree.
"""

import asyncio
import math
import time
from collections.abc import Mapping
from decimal import Decimal
from operator import attrgetter
from typing import Any, Literal

from msgspec import Struct, structs

from rlm._util.public_calls import SuggestsNames
from rlm._util.text import all_used, counted, no_such
from rlm.errors import CallRefused, ConfigError
from rlm.messages import PICODOLLARS, Usage, total_of

__all__ = ["IN_LIMITS", "Amount", "Budget", "Limits", "Reservation", "limits_of"]

FINAL_SHARE, FINAL_SECONDS = 0.1, 30.0
"""How much of a time limit is kept back for the final-answer call: this share, at most so long."""

UNLIMITED = 10**30
MAX_SIZE = 2**63 - 1
"""The largest size that an operating system accepts."""

MAY_BE_UNLIMITED = ("max_tokens", "max_cost_usd", "max_seconds")
MAY_BE_FRACTIONS = ("max_cost_usd", "max_seconds", "cell_seconds", "call_seconds")


class Limits(Struct, metaclass=SuggestsNames, frozen=True, kw_only=True):
    """What a run may use. None means no limit of that kind."""

    max_steps: int = 30
    max_depth: int = 1
    max_calls: int = 1_000
    max_concurrent_calls: int = 64
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_seconds: float | None = None
    max_errors: int = 5
    cell_seconds: float = 120.0
    cell_memory_bytes: int = 2 * 1024**3
    output_chars: int = 8_000
    kept_output_chars: int = 1_000_000
    step_output_tokens: int = 8_192
    call_output_tokens: int = 4_096
    call_seconds: float = 600.0
    max_child_sessions: int = 16
    max_child_context_bytes: int = 4 * 1024**3

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None and name in MAY_BE_UNLIMITED:
                continue
            whole = name not in MAY_BE_FRACTIONS
            if not _is_number(value, whole) or value < 0 or (value == 0 and name != "max_calls"):
                kind = "integer" if whole else "number"
                raise ConfigError(f"{name} must be a positive {kind}, not {value!r}")
            if name.endswith(("_bytes", "_chars")) and value > MAX_SIZE:
                raise ConfigError(f"{name} must be at most {MAX_SIZE:,}")


IN_LIMITS = {name: f"limits=Limits({name}=...)" for name in Limits.__struct_fields__}
"""Limits that callers pass as keywords by mistake, and how to write them instead."""


def limits_of(value: Limits | Mapping[str, Any], base: Limits | None = None) -> Limits:
    """Return limits unchanged, or those of a dict: `{"max_steps": 5}` changes `base`."""
    if isinstance(value, Limits):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f"limits must be Limits(…) or a dict, not {type(value).__name__}")
    if unknown := [name for name in value if name not in Limits.__struct_fields__]:
        raise ConfigError(no_such("limit", unknown[0], Limits.__struct_fields__))
    return structs.replace(base or Limits(), **value)


def _is_number(value: object, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        return False
    return math.isfinite(value)


class Amount(Struct, frozen=True):
    """An amount of what is limited. Money is in whole picodollars."""

    calls: int = 0
    tokens: int = 0
    picodollars: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.picodollars + other.picodollars,
        )

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(
            self.calls - other.calls,
            self.tokens - other.tokens,
            self.picodollars - other.picodollars,
        )


NOTHING = Amount()
ONE_CALL = Amount(calls=1)


class Reservation:
    """A part of a budget reserved for one request. It ends once: settled, kept or released."""

    __slots__ = ("amount", "budget", "in_flight", "open", "sent", "was_kept")

    def __init__(self, budget: "Budget", amount: Amount, *, in_flight: bool) -> None:
        self.budget = budget
        self.amount = amount
        self.in_flight = in_flight
        self.open = True
        self.sent = False
        self.was_kept = False

    def settle(self, used: Amount) -> Amount:
        """Replace the upper bound with the actual usage; return the overshoot, normally none.

        If no money was reserved, the price of the model is unknown: the cost that its provider
        states is then counted, and is never an overshoot.
        """
        over = NOTHING
        money = used.picodollars - self.amount.picodollars if self.amount.picodollars else 0
        if used.tokens > self.amount.tokens or money > 0:
            over = Amount(0, max(0, used.tokens - self.amount.tokens), max(0, money))
        self._end(used, over)
        return over

    def keep(self) -> None:
        """Count the whole bound as used, because the provider may have billed it."""
        self.was_kept = self.was_kept or self.open
        self._end(self.amount)

    def release(self) -> None:
        """Return tokens and money, because nothing was billed. A counted call stays counted."""
        self._end(Amount(calls=self.amount.calls))

    def _end(self, used: Amount, over: Amount = NOTHING) -> None:
        if self.open:
            self.open = False
            self.budget._end(self, used, over)


class _Refusal(Struct, frozen=True):
    """Why an amount can't be reserved now, and whether waiting may help."""

    by: "Budget"
    limit: str
    message: str
    waiting_helps: bool


class Budget:
    """The budget of one run, chained to that of its parent. It belongs to one event loop.

    Several root runs may draw on one: `shared` makes it, and `run` makes theirs.
    """

    def __init__(
        self, limits: Limits, parent: "Budget | None" = None, root: "Budget | None" = None
    ) -> None:
        self.limits = limits
        self.ceiling = _ceiling(limits)
        self.root: Budget = root or self  # that of the root run, where the tree's requests queue
        self.chain: tuple[Budget, ...] = (self, *parent.chain) if parent else (self,)
        self.used = NOTHING
        self.reserved = NOTHING
        self.recalled_counts_above = True  # False if budgets above have counted it already
        self.overshoot = NOTHING
        self.in_flight = 0
        self.was_refused_above = False  # True after a budget that this one draws on had no room
        self.usage: dict[tuple[str, int], Usage] = {}
        self.started = time.monotonic()
        seconds = math.inf if limits.max_seconds is None else limits.max_seconds
        until = parent.work_deadline if parent else math.inf
        self.deadline: float = min(self.started + seconds, until)
        kept_back = min(FINAL_SECONDS, (self.deadline - self.started) * FINAL_SHARE)
        self.work_deadline: float = self.deadline - kept_back
        self._turnstile = asyncio.Lock()
        self._in_line = 0  # how many requests wait at the turnstile or are passing it
        self._settled = asyncio.Event()

    @classmethod
    def shared(
        cls,
        *,
        max_tokens: int | None = None,
        max_cost_usd: float | None = None,
        max_seconds: float | None = None,
    ) -> "Budget":
        """Return a budget that any number of root runs use together."""
        return cls(
            Limits(
                max_calls=UNLIMITED,
                max_tokens=max_tokens,
                max_cost_usd=max_cost_usd,
                max_seconds=max_seconds,
            )
        )

    def run(self, limits: Limits) -> "Budget":
        """Return the budget of a root run that draws on this shared one."""
        return Budget(limits, parent=self)

    def child(self, limits: Limits) -> "Budget":
        """Return the budget of a child run, which draws on this one and can only be narrower."""
        return Budget(limits, parent=self, root=self.root)

    # -- reserving ---------------------------------------------------------------------------

    def reserve_at_once(self, amount: Amount) -> Reservation | None:
        """Reserve `amount` for a request if it fits and no other request waits, as is usual."""
        if self.root._in_line or self._refusal(amount) is not None:
            return None
        return self._take(amount, in_flight=True)

    async def reserve(self, amount: Amount) -> Reservation:
        """Reserve `amount`, first come first served.

        If it does not fit, wait for pending requests to settle; refuse only if there are none.
        """
        root = self.root
        root._in_line += 1
        try:
            async with root._turnstile:
                while (refusal := self._refusal(amount)) is not None:
                    if not refusal.waiting_helps:
                        raise self._error(refusal)
                    refusal.by._settled.clear()
                    await refusal.by._settled.wait()
                return self._take(amount, in_flight=True)
        finally:
            root._in_line -= 1

    def hold(self, amount: Amount) -> Reservation:
        """Reserve `amount` for later; never waits, and no request waits for it."""
        if (refusal := self._refusal(amount)) is not None:
            raise self._error(refusal)
        return self._take(amount, in_flight=False)

    def exchange(self, held: Reservation, amount: Amount) -> Reservation:
        """Turn what was held back into a reservation for a request that is sent now.

        If it does not fit, raise CallRefused and keep what was held back.
        """
        if (refusal := self._refusal(amount, self.deadline, instead_of=held)) is not None:
            raise self._error(refusal)
        held.release()
        return self._take(amount, in_flight=True)

    def refuse(self, message: str, limit: Literal["tokens", "cost_usd"]) -> CallRefused:
        """Return the error for a request that needs more of this limit than is left."""
        kind = attrgetter("tokens" if limit == "tokens" else "picodollars")
        tightest = min(self.chain, key=lambda node: kind(node._left()))
        return self._error(_Refusal(tightest, limit, message, False))

    def room(self) -> Amount:
        """Return the most that could be reserved at this moment."""
        room = Amount(UNLIMITED, UNLIMITED, UNLIMITED)
        for node in self.chain:
            left = node._left()
            room = Amount(
                min(room.calls, left.calls),
                min(room.tokens, left.tokens),
                min(room.picodollars, left.picodollars),
            )
        return room

    @property
    def is_limited(self) -> bool:
        """Whether tokens or money are limited."""
        return any(
            node.limits.max_tokens is not None or node.limits.max_cost_usd is not None
            for node in self.chain
        )

    @property
    def kept(self) -> Amount:
        """Return the part of `used` without a reply: what failed requests may have cost."""
        kept = self.used - amount_of(total_of(self.usage.values()))
        return Amount(0, max(0, kept.tokens), max(0, kept.picodollars))

    @property
    def seconds_left(self) -> float:
        """Seconds until work must stop to leave time for the final request."""
        return max(0.0, self.work_deadline - time.monotonic())

    def left(self) -> dict[str, float | int | None]:
        """Return what `budget()` shows to cells; None is unlimited."""
        room = self.room()
        seconds = self.seconds_left
        return {
            "calls": room.calls,
            "tokens": None if room.tokens > UNLIMITED // 2 else max(0, room.tokens),
            "cost_usd": None
            if room.picodollars > UNLIMITED // 2
            else max(0, room.picodollars) / PICODOLLARS,
            "seconds": None if seconds == math.inf else round(seconds, 1),
        }

    def count_call(self) -> None:
        """Count a call from a cell; refuse it if none is left. Calls are never returned."""
        if (refusal := self._refusal(ONE_CALL)) is not None:
            raise self._error(refusal)
        for node in self.chain:
            node.used += ONE_CALL

    def charge(self, used: Amount, *, below_root: bool = False) -> None:
        """Count what an earlier execution has paid for; `below_root`: the root has counted it."""
        for node in self._below_root if below_root else self.chain:
            node.used += used
            node._settled.set()
            if not node.recalled_counts_above:
                break

    def note_usage(self, model: str, depth: int, usage: Usage, *, below_root: bool = False) -> None:
        """Add a settled reply to the sums by model and depth."""
        for node in self._below_root if below_root else self.chain:
            known = node.usage.get((model, depth))
            node.usage[model, depth] = usage if known is None else known + usage

    # -- bookkeeping -------------------------------------------------------------------------

    @property
    def _below_root(self) -> "tuple[Budget, ...]":
        return self.chain[: self.chain.index(self.root)]

    def _error(self, refusal: _Refusal) -> CallRefused:
        """Return the error for a refused request; budgets below the one that refused note it."""
        for node in self.chain[: self.chain.index(refusal.by)]:
            node.was_refused_above = True
        return CallRefused(refusal.message, limit=refusal.limit)

    def _left(self) -> Amount:
        return self.ceiling - self.used - self.reserved

    def _refusal(
        self,
        amount: Amount,
        deadline: float | None = None,
        *,
        instead_of: Reservation | None = None,
    ) -> _Refusal | None:
        now = time.monotonic()
        freed = instead_of.amount if instead_of is not None and instead_of.open else None
        for node in self.chain:
            if (refusal := node._own_refusal(amount, deadline, now, freed)) is not None:
                return refusal
        return None

    def _own_refusal(
        self, amount: Amount, deadline: float | None, now: float, freed: Amount | None
    ) -> _Refusal | None:
        ceiling, used, reserved = self.ceiling, self.used, self.reserved
        calls = used.calls + reserved.calls + amount.calls
        tokens = used.tokens + reserved.tokens + amount.tokens
        money = used.picodollars + reserved.picodollars + amount.picodollars
        if freed is not None:
            calls, tokens = calls - freed.calls, tokens - freed.tokens
            money -= freed.picodollars
        if now >= (self.work_deadline if deadline is None else deadline):
            return _Refusal(self, "seconds", "the time limit has been reached (max_seconds)", False)
        if calls > ceiling.calls:
            text = f"{all_used(ceiling.calls, 'call')} (max_calls)"
            return _Refusal(self, "calls", text, False)
        if self.overshoot is not NOTHING and (refusal := self._overshot()) is not None:
            return refusal
        if tokens > ceiling.tokens:
            left = ceiling.tokens - tokens + amount.tokens
            text = (
                f"{counted(amount.tokens, 'token')} may be needed, {left:,} are free (max_tokens)"
            )
            return _Refusal(self, "tokens", text, self.in_flight > 0)
        if money > ceiling.picodollars:
            need_usd = amount.picodollars / PICODOLLARS
            left_usd = (ceiling.picodollars - money) / PICODOLLARS + need_usd
            text = f"${need_usd:.6f} may be needed, ${left_usd:.6f} is free (max_cost_usd)"
            return _Refusal(self, "cost_usd", text, self.in_flight > 0)
        return None

    def _overshot(self) -> _Refusal | None:
        """Refuse every request under a limit whose bound a server has already exceeded."""
        over = self.overshoot
        if over.tokens and self.limits.max_tokens is not None:
            used, limit = counted(over.tokens, "token"), "tokens"
        elif over.picodollars and self.limits.max_cost_usd is not None:
            used, limit = f"${over.picodollars / PICODOLLARS:.6f}", "cost_usd"
        else:
            return None
        text = f"the server used {used} more than a request can, so this budget sends nothing more"
        return _Refusal(self, limit, text, False)

    def _take(self, amount: Amount, *, in_flight: bool) -> Reservation:
        for node in self.chain:
            node.reserved += amount
            node.in_flight += in_flight
        return Reservation(self, amount, in_flight=in_flight)

    def _end(self, reservation: Reservation, used: Amount, over: Amount) -> None:
        for node in self.chain:
            node.reserved -= reservation.amount
            node.used += used
            node.in_flight -= reservation.in_flight
            if over is not NOTHING:
                node.overshoot += over
            node._settled.set()


def _ceiling(limits: Limits) -> Amount:
    money = UNLIMITED if limits.max_cost_usd is None else picodollars(limits.max_cost_usd)
    tokens = UNLIMITED if limits.max_tokens is None else limits.max_tokens
    return Amount(limits.max_calls, tokens, money)


def amount_of(usage: Usage) -> Amount:
    """Return the tokens and money of a usage."""
    return Amount(0, usage.total_tokens, picodollars(usage.cost_usd or 0))


def usage_of(kept: Amount) -> Usage:
    """Return the tokens and money of requests without a reply as a usage, to store it."""
    money = kept.picodollars / PICODOLLARS if kept.picodollars else None
    return Usage(input_tokens=kept.tokens, cost_usd=money)


def picodollars(usd: float) -> int:
    """Return a limit in whole picodollars, rounded down so that it never grows."""
    return math.floor(Decimal(str(usd)) * PICODOLLARS)
