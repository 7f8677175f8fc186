"""How many tokens the input of a request can have at most.

The first request of a conversation counts one token a byte. A later one counts what the provider
reported for the messages they have in common, and bytes only for what is new: as strict as before,
and several times tighter.
"""

from operator import attrgetter

import msgspec

from rlm.messages import Message, Request, Usage

__all__ = ["ReportedPrefix", "bound_tokens", "input_bound"]

MESSAGE_OVERHEAD_TOKENS = 16
"""Roles, separators and the like, which providers bill but a caller does not see."""

BYTES_PER_TOKEN = 64
"""A report of fewer tokens than one for this many bytes leaves something out, such as the part
that a local server still had in its cache; a bound must not be built on it."""

_BOUND_TOKENS = attrgetter("bound_tokens")


def bound_tokens(messages: tuple[Message, ...]) -> int:
    """At least as many tokens as any byte-level tokenizer can make of these messages."""
    tokens: int = sum(map(_BOUND_TOKENS, messages))
    return tokens + MESSAGE_OVERHEAD_TOKENS * len(messages)


def input_bound(request: Request) -> int:
    """The bound by bytes alone: messages and tools."""
    return bound_tokens(request.messages) + sum(len(msgspec.json.encode(t)) for t in request.tools)


class ReportedPrefix:
    """What a provider said about the requests of one conversation, each longer than the last.

    A report counts for whole messages, and only for requests that differ in nothing else.
    """

    def __init__(self) -> None:
        self._request: Request | None = None
        self._reports: list[tuple[int, int]] = []  # messages, tokens; both grow
        self._trusted = True

    def bound(self, request: Request) -> int:
        """The most input tokens this request can have."""
        if not (shared := self._shared(request)):
            return input_bound(request)
        count, tokens = self._reports[shared - 1]
        return tokens + bound_tokens(request.messages[count:])

    def note(self, request: Request, usage: Usage | None) -> None:
        """Learn from a reply, until a report turns out not to count the whole request."""
        if usage is None or not self._trusted:
            return
        kept = self._reports[: self._shared(request)]
        least = kept[-1][1] if kept else max(1, input_bound(request) // BYTES_PER_TOKEN)
        self._trusted = usage.input_tokens >= least
        self._request = request
        self._reports = [*kept, (len(request.messages), usage.input_tokens)] * self._trusted

    def _shared(self, request: Request) -> int:
        """How many of the reports are about messages that this request begins with."""
        known = self._request
        if known is None or not _alike(known, request):
            return 0
        common = 0
        for one, other in zip(known.messages, request.messages, strict=False):
            if one is not other and one != other:
                break
            common += 1
        return sum(count <= common for count, _ in self._reports)


def _alike(one: Request, other: Request) -> bool:
    """Whether two requests differ at most in their messages and output caps."""
    return (one.model, one.tools, one.sampling) == (other.model, other.tools, other.sampling)
