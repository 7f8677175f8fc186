"""Requests, replies, usage and prices: frozen values without behaviour beyond arithmetic."""

import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar, overload

from msgspec import Struct, field, json

from rlm._util.public_calls import SuggestsNames
from rlm._util.text import sendable
from rlm.errors import ConfigError
from rlm.images import bound_of_parts

__all__ = [
    "KEPT",
    "LARGEST_COST_USD",
    "LARGEST_COUNT",
    "Message",
    "ModelInfo",
    "Price",
    "Reply",
    "ReplyKey",
    "Request",
    "ToolCall",
    "ToolSpec",
    "Usage",
    "bare_name",
    "followed_by",
    "total_of",
]

DIGEST_CHARS = 32
_DIGEST = attrgetter("digest")

MESSAGE_OVERHEAD_TOKENS = 16
"""Roles and separators, which providers bill but a caller does not see."""

PICODOLLARS = 10**12
"""Money is counted in whole picodollars, so that sums are exact and never drift past a limit."""

LARGEST_COUNT = 1 << 40
"""No request has a trillion tokens; such a count is ignored."""

LARGEST_COST_USD = 1e6

Value = TypeVar("Value")


class _cached(Generic[Value]):  # noqa: N801 - read as a decorator
    """`functools.cached_property` without the lock that it takes before Python 3.12."""

    def __init__(self, find: Callable[[Any], Value]) -> None:
        self._find = find
        self.__doc__ = find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, one: None, owner: type | None = None) -> "_cached[Value]": ...

    @overload
    def __get__(self, one: object, owner: type | None = None) -> Value: ...

    def __get__(self, one: object | None, owner: type | None = None) -> "Value | _cached[Value]":
        if one is None:
            return self
        value = one.__dict__[self._name] = self._find(one)
        return value


class ToolCall(Struct, frozen=True):
    """One native tool call in a reply."""

    id: str
    name: str
    arguments: dict[str, Any]


class ToolSpec(Struct, frozen=True):
    """A tool as it is described to a model with native tools."""

    name: str
    description: str
    parameters: dict[str, Any]


class Message(Struct, frozen=True, omit_defaults=True, dict=True):
    """One message. `opaque` holds provider parts that must be sent back unchanged."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]]
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    opaque: Any = None

    # Every request holds the whole history of its run, so these are computed once per message.

    @_cached
    def chars(self) -> int:
        """About how many characters are sent, with those of encoded pictures."""
        if isinstance(self.content, str):
            return len(self.content)
        values = (value for part in self.content for value in part.values())
        return sum(len(value) for value in values if isinstance(value, str))

    @_cached
    def bound_tokens(self) -> int:
        """An upper bound on the tokens that any byte-level tokenizer makes of the message.

        Pictures count by their pixels, as providers bill them, not by the length of their base64.
        """
        size = bound_of_parts(self.content) if isinstance(self.content, list) else 0
        if isinstance(self.content, str):
            size = len(self.content)
            if not self.content.isascii():
                size = len(self.content.encode("utf-8", "surrogatepass"))
        if self.tool_calls:
            size += sum(len(repr(call).encode()) for call in self.tool_calls)
        return size if self.opaque is None else size + len(repr(self.opaque).encode())

    @_cached
    def digest(self) -> bytes:
        """A hash of the whole message."""
        return hashlib.sha256(json.encode(self)).digest()

    @_cached
    def is_sendable(self) -> bool:
        """Whether it is free of lone surrogates, which HTTP and JSON can't carry."""
        if isinstance(self.content, str):
            return self.content.isascii() or sendable(self.content) is self.content
        texts = [part.get("text") for part in self.content]
        return all(sendable(text) is text for text in texts if isinstance(text, str))


_BOUND_TOKENS = attrgetter("bound_tokens")
_CHARS = attrgetter("chars")


def bound_tokens(messages: tuple[Message, ...]) -> int:
    """Return an upper bound on the tokens that any byte-level tokenizer makes of messages."""
    tokens: int = sum(map(_BOUND_TOKENS, messages))
    return tokens + MESSAGE_OVERHEAD_TOKENS * len(messages)


def followed_by(messages: Sequence[Message], text: str) -> tuple[Message, ...]:
    """Return the messages with a user's text after them.

    The text is joined to a last user message, because many chat templates require alternating
    roles.
    """
    last = messages[-1] if messages else None
    if last is None or last.role != "user" or not isinstance(last.content, str):
        return (*messages, Message("user", text))
    return (*messages[:-1], Message("user", f"{last.content}\n\n{text}"))


class Request(Struct, frozen=True, kw_only=True, dict=True):
    """A request to one model, with everything that determines the reply.

    `grows`: the next request begins with the same messages, so a prompt cache is worth its price.
    """

    model: str
    messages: tuple[Message, ...]
    max_output_tokens: int
    sampling: dict[str, Any] = field(default_factory=dict)
    tools: tuple[ToolSpec, ...] = ()
    grows: bool = False

    @_cached
    def chars(self) -> int:
        """About how many characters its messages have."""
        return sum(map(_CHARS, self.messages))

    @_cached
    def bound_tokens(self) -> int:
        """An upper bound on the tokens of its input, by its bytes alone."""
        tools = sum(len(json.encode(tool)) for tool in self.tools) if self.tools else 0
        return tools + bound_tokens(self.messages)

    def digest(self) -> str:
        """Return a hash of the whole request; known hashes of messages are reused."""
        other = self.model, self.max_output_tokens, self.sampling, self.tools, self.grows
        messages = b"".join(map(_DIGEST, self.messages))
        return hashlib.sha256(messages + json.encode(other)).hexdigest()[:DIGEST_CHARS]


class Usage(Struct, frozen=True, omit_defaults=True):
    """The tokens and money of one or several replies. An unknown cost is None, never 0.

    `input_tokens` includes those read from a prompt cache (`cached_tokens`) and those written to
    one (`cache_write_tokens`); `output_tokens` includes `reasoning_tokens`.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None
    requests: int = 0
    cache_write_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        """Add two usages; an unknown cost makes the sum unknown unless it is of no requests."""
        costs = [
            part.cost_usd for part in (self, other) if part.requests or part.cost_usd is not None
        ]
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            None if not costs or None in costs else _exact_sum(costs),
            self.requests + other.requests,
            self.cache_write_tokens + other.cache_write_tokens,
        )


def _exact_sum(costs: Sequence[float | None]) -> float:
    """Round to the picodollar, so that a sum does not depend on the order of its parts."""
    return round(math.fsum(cost for cost in costs if cost is not None), 12)


class Reply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reply of a model. `usage` is None if the provider did not report it.

    Clients never return "failed": a store uses it for a call that ended with the error in `text`.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    usage: Usage | None = None
    finish_reason: Literal["stop", "length", "tool_calls", "refusal", "other", "failed"] = "stop"
    model: str = ""
    opaque: Any = None


KEPT = "kept"
"""The kind of a key for what a request without a reply may have cost."""


class ReplyKey(Struct, frozen=True, gc=False):
    """The key under which a run stores a reply, the result of a tool or the answer of a child.

    The path of the run, the hash of the request and its number among equals are the same on every
    execution, in whatever order threads and batches finish. `kind` and `step` say where it belongs.
    """

    path: str
    digest: str
    number: int
    kind: str = ""
    step: int = 0

    def __str__(self) -> str:
        return f"{self.path}/{self.digest}/{self.number}"

    @property
    def run_paths(self) -> list[str]:
        """The path of its run, of the run above, and so on."""
        names = self.path.split("/")
        return ["/".join(names[:count]) for count in range(len(names), 0, -1)]


class Price(Struct, metaclass=SuggestsNames, frozen=True, omit_defaults=True):
    """US dollars per million tokens; input from or to a prompt cache may have its own price.

    `long`: a number of input tokens, and the price of requests with more of them.
    """

    input_per_million: float
    output_per_million: float
    cached_per_million: float | None = None
    cache_write_per_million: float | None = None
    long: "tuple[int, Price] | None" = None

    def __post_init__(self) -> None:
        cached, written = self.cached_per_million, self.cache_write_per_million
        given: tuple[Any, ...] = (self.input_per_million, self.output_per_million)
        for each in (*given, cached or 0, written or 0):
            is_number = isinstance(each, int | float) and not isinstance(each, bool)
            if not is_number or not 0 <= each < math.inf:  # A negative price would refill a budget.
                raise ConfigError(f"a price must be at least 0 US dollars, not {each!r}")

    def bound(self, input_tokens: int, output_tokens: int) -> int:
        """Return the most that this many tokens can cost, in picodollars, without any cache."""
        dearest = max(
            self.input_per_million, self.cached_per_million or 0, self.cache_write_per_million or 0
        )
        cost = input_tokens * _per_token(dearest)
        cost += output_tokens * _per_token(self.output_per_million)
        if self.long is not None and input_tokens > self.long[0]:
            cost = max(cost, self.long[1].bound(input_tokens, output_tokens))
        return cost

    def cost(self, usage: Usage) -> int:
        """Return the cost of a usage in picodollars."""
        if self.long is not None and usage.input_tokens > self.long[0]:
            return self.long[1].cost(usage)
        read, written = usage.cached_tokens, usage.cache_write_tokens
        plain = max(0, usage.input_tokens - read - written)
        return (
            plain * _per_token(self.input_per_million)
            + read * _per_token(_either(self.cached_per_million, self.input_per_million))
            + written * _per_token(_either(self.cache_write_per_million, self.input_per_million))
            + usage.output_tokens * _per_token(self.output_per_million)
        )


def _either(own: float | None, usual: float) -> float:
    return usual if own is None else own


@functools.cache
def _per_token(usd_per_million: float) -> int:
    """Return picodollars per token; exact, because 0.1 * 10**6 is not 100000 in floats."""
    return math.ceil(Decimal(str(usd_per_million)) * (PICODOLLARS // 10**6))


class ModelInfo(Struct, frozen=True):
    """What is known about a model; unknown values are None.

    A run whose model is not a language model ends with `passages` instead of `answer`.
    """

    window_tokens: int | None = None
    price: Price | None = None
    profile: Literal["frontier", "standard", "small", "tiny"] = "standard"
    is_language_model: bool = True


def bare_name(model: str) -> str:
    """Return the name of a model without its provider, as the reference names it."""
    return model.partition("/")[2] or model


def total_of(parts: Iterable[Usage]) -> Usage:
    """Return the sum of several usages."""
    total = Usage()
    for part in parts:
        total += part
    return total
