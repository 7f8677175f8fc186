"""What a request can cost at most, and what a reply did cost."""

import msgspec

from rlm.calls.bounds import ReportedPrefix, input_bound
from rlm.limits import NOTHING, Amount, picodollars
from rlm.messages import PICODOLLARS, ModelInfo, Reply, Request, Usage

__all__ = ["FREE", "bill", "with_smaller_cap", "worst_case"]

SMALLEST_OUTPUT_TOKENS = 256
"""A request whose output cap had to be cut below this is not worth its input."""

FREE = Usage(cost_usd=0.0)
"""What a reply from the cache used: nothing, and no request was made."""


def worst_case(request: Request, info: ModelInfo, known: ReportedPrefix | None = None) -> Amount:
    """The most this request can cost; less of it is guessed where a part is known."""
    input_tokens = input_bound(request) if known is None else known.bound(request)
    output_tokens = request.max_output_tokens
    money = info.price.bound(input_tokens, output_tokens) if info.price else 0
    return Amount(tokens=input_tokens + output_tokens, picodollars=money)


def with_smaller_cap(
    request: Request, info: ModelInfo, room: Amount, known: ReportedPrefix | None = None
) -> Request | None:
    """The same request with the largest output cap there is room for, if that is worth sending."""
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
    """What a reply used. Where the provider does not say, its input counts as it was reserved."""
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
