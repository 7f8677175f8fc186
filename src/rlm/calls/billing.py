"""The most that a request can cost, and what a reply did cost.

The first request of a conversation counts one token per byte. A later one counts what the provider
reported for the messages they have in common, and bytes only for what is new. This bound is just
as safe, and several times tighter.
"""

from bisect import bisect_right
from operator import attrgetter, itemgetter

import msgspec

from rlm.limits import NOTHING, Amount, picodollars
from rlm.messages import PICODOLLARS, Message, ModelInfo, Reply, Request, Usage

__all__ = [
    "FREE",
    "ReportedPrefix",
    "bill",
    "bound_tokens",
    "input_bound",
    "with_smaller_cap",
    "worst_case",
]

MESSAGE_OVERHEAD_TOKENS = 16
"""Roles and separators, which providers bill but a caller does not see."""

BYTES_PER_TOKEN = 64
"""A report of less than one token per this many bytes leaves something out, such as the part that
a local server still had in its cache; it must not be used for a bound."""

_BOUND_TOKENS = attrgetter("bound_tokens")


def bound_tokens(messages: tuple[Message, ...]) -> int:
    """Return an upper bound on the tokens that any byte-level tokenizer makes of messages."""
    tokens: int = sum(map(_BOUND_TOKENS, messages))
    return tokens + MESSAGE_OVERHEAD_TOKENS * len(messages)


def input_bound(request: Request) -> int:
    """Return the bound by bytes alone, for messages and tools."""
    return bound_tokens(request.messages) + sum(len(msgspec.json.encode(t)) for t in request.tools)


class ReportedPrefix:
    """The tokens that a provider reported for one conversation, whose requests grow.

    A report applies to whole messages, and only to requests that are otherwise equal.
    """

    def __init__(self) -> None:
        self._request: Request | None = None
        self._reports: list[tuple[int, int]] = []  # messages, tokens; both grow
        self._trusted = True

    def bound(self, request: Request) -> int:
        """Return the most input tokens this request can have."""
        if not (shared := self._shared(request)):
            return input_bound(request)
        count, tokens = self._reports[shared - 1]
        return tokens + bound_tokens(request.messages[count:])

    def note(self, request: Request, usage: Usage | None) -> None:
        """Learn from a reply; stop for good if a report does not count the whole request."""
        if usage is None or not self._trusted:
            return
        kept = self._reports[: self._shared(request)]
        least = kept[-1][1] if kept else max(1, input_bound(request) // BYTES_PER_TOKEN)
        self._trusted = usage.input_tokens >= least
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
    input_tokens = input_bound(request) if known is None else known.bound(request)
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


def bill(request: Request, reply: Reply, info: ModelInfo, reserved: Amount) -> tuple[Usage, Amount]:
    """Return what a reply used; without a report, its input counts as reserved."""
    if reply.usage == FREE:
        return FREE, NOTHING
    usage = reply.usage or Usage(
        input_tokens=reserved.tokens - request.max_output_tokens,
        output_tokens=min(
            len(reply.text.encode("utf-8", "surrogatepass")), request.max_output_tokens
        ),
    )
    money = None if usage.cost_usd is None else picodollars(usage.cost_usd)
    if money is None and info.price is not None:
        money = info.price.cost(usage)
    cost_usd = None if money is None else money / PICODOLLARS
    usage = msgspec.structs.replace(usage, cost_usd=cost_usd, requests=1)
    return usage, Amount(tokens=usage.total_tokens, picodollars=money or 0)
