"""The most that a request can cost, and what a reply did cost.

The first request of a conversation counts one token per byte. A later one counts what the provider
reported for the messages they have in common, and bytes only for what is new. This bound is just
as safe, and several times tighter.

What a report leaves out, such as the input of a server that always writes 0, counts as its bound.
"""

from bisect import bisect_right
from operator import itemgetter
from typing import Any

import msgspec

from rlm.limits import NOTHING, Amount, picodollars
from rlm.messages import (
    LARGEST_COST_USD,
    LARGEST_COUNT,
    PICODOLLARS,
    ModelInfo,
    Price,
    Reply,
    Request,
    Usage,
    bound_tokens,
)

__all__ = [
    "FREE",
    "ReportedPrefix",
    "bill",
    "checked_usage",
    "stated_tokens",
    "with_smaller_cap",
    "worst_case",
]

BYTES_PER_TOKEN = 64
"""A report of less than one token per this many bytes leaves something out, such as the part that
a local server still had in its cache; it is used neither for a bound nor for the bill."""


def fewest_input_tokens(request: Request) -> int:
    """Return how many tokens a report must state at least to count the whole input."""
    return max(1, request.bound_tokens // BYTES_PER_TOKEN)


class ReportedPrefix:
    """The tokens that a provider reported for one conversation, whose requests grow.

    A report applies to whole messages, and only to requests that are otherwise equal. After one
    that does not count the whole input, no report of this conversation's input is believed.
    """

    def __init__(self) -> None:
        self._request: Request | None = None
        self._reports: list[tuple[int, int]] = []  # messages, tokens; both grow
        self._trusted = True

    def bound(self, request: Request) -> int:
        """Return the most input tokens this request can have."""
        if not (shared := self._shared(request)):
            return request.bound_tokens
        count, tokens = self._reports[shared - 1]
        return tokens + bound_tokens(request.messages[count:])

    def believes(self, request: Request, usage: Usage) -> bool:
        """Whether a report may count the whole input: never less than for its beginning."""
        shared = self._shared(request)
        least = self._reports[shared - 1][1] if shared else 0
        return self._trusted and usage.input_tokens >= max(least, fewest_input_tokens(request))

    def note(self, request: Request, usage: Usage | None) -> None:
        """Learn from a reply; stop for good if a report does not count the whole request."""
        if usage is None or usage == FREE or not self._trusted:
            return  # A free reply comes from a cache or another run, and reports nothing.
        kept = self._reports[: self._shared(request)]
        self._trusted = self.believes(request, usage)
        self._request = request
        self._reports = [*kept, (len(request.messages), usage.input_tokens)] * self._trusted

    def _shared(self, request: Request) -> int:
        """Count the reports about messages that this request begins with."""
        known = self._request
        if known is None or not _alike(known, request):
            return 0
        common = 0
        for one, other in zip(known.messages, request.messages, strict=False):
            if one is not other and one != other:
                break
            common += 1
        return bisect_right(self._reports, common, key=itemgetter(0)) if common else 0


def _alike(one: Request, other: Request) -> bool:
    """Whether two requests differ at most in their messages and output caps."""
    return (one.model, one.tools, one.sampling) == (other.model, other.tools, other.sampling)


SMALLEST_OUTPUT_TOKENS = 256
"""A request with a smaller output cap is not worth its input."""

FREE = Usage(cost_usd=0.0)
"""The usage of a cached reply: no tokens and no request."""


def worst_case(request: Request, info: ModelInfo, known: ReportedPrefix | None = None) -> Amount:
    """Return the most this request can cost; a known prefix makes the bound tighter."""
    input_tokens = request.bound_tokens if known is None else known.bound(request)
    output_tokens = request.max_output_tokens
    money = info.price.bound(input_tokens, output_tokens) if info.price else 0
    return Amount(tokens=input_tokens + output_tokens, picodollars=money)


def with_smaller_cap(
    request: Request, info: ModelInfo, room: Amount, known: ReportedPrefix | None = None
) -> Request | None:
    """Return the request with the largest output cap that fits, or None if that is too small."""
    fixed = worst_case(msgspec.structs.replace(request, max_output_tokens=0), info, known)
    cap = room.tokens - fixed.tokens
    if info.price is not None:
        per_token = info.price.bound(fixed.tokens, 1) - info.price.bound(fixed.tokens, 0)
        left = room.picodollars - fixed.picodollars
        cap = min(cap, left // per_token if per_token else (cap if left >= 0 else 0))
    if not SMALLEST_OUTPUT_TOKENS <= cap < request.max_output_tokens:
        return None
    return msgspec.structs.replace(request, max_output_tokens=cap)


def checked_usage(usage: object) -> Usage | None:
    """Return a reported or recorded usage; None if it is not possible.

    Clients are plugins, and records come from files. The two sides are at least the counts that
    are part of them.
    """
    if not isinstance(usage, Usage):
        return None
    if usage == FREE:
        return FREE
    sent, written, thought = usage.input_tokens, usage.output_tokens, usage.reasoning_tokens
    in_cache = usage.cached_tokens, usage.cache_write_tokens
    counts = sent, written, thought, *in_cache, usage.requests
    if not (_are_in_range(counts, _COUNT, LARGEST_COUNT) and _is_cost(usage.cost_usd)):
        return None
    if sent >= sum(in_cache) and written >= thought:
        return usage
    return msgspec.structs.replace(
        usage, input_tokens=max(sent, sum(in_cache)), output_tokens=max(written, thought)
    )


_COUNT = frozenset({int})
_MONEY = frozenset({int, float})


def _is_cost(cost_usd: object) -> bool:
    return cost_usd is None or _are_in_range((cost_usd,), _MONEY, LARGEST_COST_USD)


def _are_in_range(numbers: tuple[Any, ...], types: frozenset[type], largest: float) -> bool:
    """Whether all are numbers of these types, not NaN, and neither negative nor too large."""
    if not types.issuperset(map(type, numbers)):
        return False
    return bool(min(numbers) >= 0 and max(numbers) <= largest)


def stated_tokens(request: Request, reply: Reply) -> int | None:
    """Return the tokens that a reply reports; None unless it may count both sides completely."""
    usage = reply.usage
    if usage is None or usage == FREE:
        return None if usage is None else 0
    whole = usage.input_tokens >= fewest_input_tokens(request) and _counts_output(reply, usage)
    return usage.total_tokens if whole else None


def _counts_output(reply: Reply, usage: Usage) -> bool:
    """Whether a report may count the whole reply."""
    size = _output_bytes(reply)
    return not size or usage.output_tokens >= max(1, size // BYTES_PER_TOKEN)


def _output_bytes(reply: Reply) -> int:
    text, reasoning = reply.text, reply.reasoning
    if not (reasoning or reply.tool_calls) and text.isascii():
        return len(text)
    texts = (text, reasoning or "", *map(repr, reply.tool_calls or ()))
    return sum(len(each.encode("utf-8", "surrogatepass")) for each in texts)


def bill(
    request: Request,
    reply: Reply,
    info: ModelInfo,
    reserved: Amount,
    known: ReportedPrefix | None = None,
) -> tuple[Usage, Amount]:
    """Return what a reply used; what its report leaves out counts as a bound.

    The input then counts as reserved, and the output as the bytes of the reply. `known` is what
    was reported for the conversation, if the request is part of one.
    """
    usage = reply.usage or Usage()
    if usage == FREE:
        return FREE, NOTHING
    cost_usd, price = usage.cost_usd, info.price
    if known is not None:
        has_input = known.believes(request, usage)
    else:
        has_input = usage.input_tokens >= fewest_input_tokens(request)
    has_output = _counts_output(reply, usage)
    if not has_output:
        size = min(_output_bytes(reply), request.max_output_tokens)
        usage = msgspec.structs.replace(usage, output_tokens=max(size, usage.output_tokens))
    if not has_input:
        bound = reserved.tokens - request.max_output_tokens
        usage = msgspec.structs.replace(
            usage, input_tokens=bound, cached_tokens=0, cache_write_tokens=0
        )
    if cost_usd is None or (cost_usd == 0 and not (has_input and has_output)):
        money = None if price is None else _money(price, usage, has_input=has_input)
    else:
        money = picodollars(cost_usd)
    cost_usd = None if money is None else money / PICODOLLARS
    usage = msgspec.structs.replace(usage, cost_usd=cost_usd, requests=1)
    return usage, Amount(tokens=usage.total_tokens, picodollars=money or 0)


def _money(price: Price, usage: Usage, *, has_input: bool) -> int:
    """Return the cost in picodollars; input that was not reported may have its dearest price."""
    if has_input:
        return price.cost(usage)
    return price.bound(usage.input_tokens, usage.output_tokens)
