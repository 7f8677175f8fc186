"""One answer to one request, independent of the dialect."""

import hashlib
import json
import re
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from rlm._util.text import sendable
from rlm.messages import Usage
from rlm.testing.fake_server.requests import Asked
from rlm.testing.fake_server.script import Answer, Call

__all__ = ["FakeReply", "in_pieces", "make_reply"]

BYTES_A_TOKEN = 4
PIECE_CHARS = 65_536
FILLING = "0123456789abcde "

_WORDS = re.compile(r"\s*\S+\s*")


class FakeReply(Struct, frozen=True):
    """The content of a reply. `usage` None is not stated; `empty`: there is no answer at all."""

    number: int
    model: str
    text: str
    reasoning: str
    refusal: str
    tool_calls: tuple[Call, ...]
    finish_reason: Literal["stop", "length", "tool_calls", "refusal"]
    usage: Usage | None
    empty: bool = False

    def identity(self, prefix: str, *parts: object, length: int = 24) -> str:
        """Return an id in a dialect's style.

        The same request of the same script always gets the same.
        """
        seed = ":".join(map(str, (prefix, self.number, *parts)))
        return prefix + hashlib.blake2b(seed.encode(), digest_size=32).hexdigest()[:length]


def make_reply(number: int, asked: Asked, answer: Answer) -> FakeReply:
    """Make the reply to this request: capped as it asks, with token counts."""
    behaviours = answer.behaviours
    text, cut = sendable(answer.reply), False
    if "huge" in behaviours:
        text = (FILLING * (answer.size_bytes // len(FILLING) + 1))[: answer.size_bytes]
    elif asked.max_output_tokens is not None:
        text, cut = _capped(text, asked.max_output_tokens)
    reply = FakeReply(
        number=number,
        model=asked.model,
        text=text,
        reasoning=sendable(answer.reasoning),
        refusal=sendable(answer.refusal),
        tool_calls=answer.tool_calls,
        finish_reason=answer.finish_reason or _finish(answer, cut=cut),
        usage=None,
        empty="no_choices" in behaviours,
    )
    stated = "no_usage" not in behaviours and asked.wants_usage
    return replace(reply, usage=_usage(reply, asked, answer)) if stated else reply


def _capped(text: str, tokens: int) -> tuple[str, bool]:
    data = text.encode()
    room = tokens * BYTES_A_TOKEN - 1
    if len(data) <= room:
        return text, False
    return data[:room].decode("utf-8", "ignore"), True


def _finish(answer: Answer, *, cut: bool) -> Literal["stop", "length", "tool_calls", "refusal"]:
    if answer.refusal:
        return "refusal"
    if answer.tool_calls:
        return "tool_calls"
    return "length" if cut else "stop"


def _usage(reply: FakeReply, asked: Asked, answer: Answer) -> Usage:
    if (given := answer.usage) is not None:
        return Usage(
            input_tokens=given.input_tokens,
            output_tokens=given.output_tokens,
            cached_tokens=given.cached_tokens,
            cache_write_tokens=given.cache_write_tokens,
            reasoning_tokens=given.reasoning_tokens,
        )
    called = "".join(call.name + json.dumps(call.arguments) for call in reply.tool_calls)
    thought = _tokens(reply.reasoning) if reply.reasoning else 0
    return Usage(
        input_tokens=_tokens(asked.text),
        output_tokens=_tokens(reply.text + reply.refusal + called) + thought,
        reasoning_tokens=thought,
    )


def _tokens(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass")) // BYTES_A_TOKEN + 1


def in_pieces(text: str) -> list[str]:
    """Split a text as a stream does: into words, or into larger pieces if it is long."""
    if len(text) > PIECE_CHARS:
        return [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]
    return _WORDS.findall(text) or ([text] if text else [])
