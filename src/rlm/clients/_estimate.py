"""What clients without a server share: text, token counts and streams."""

import re
from collections.abc import AsyncGenerator

from msgspec import json
from msgspec.structs import replace

from rlm.messages import Message, Reply, Request, Usage

__all__ = ["capped_reply", "message_text", "request_text", "tokens", "usage_of", "word_by_word"]

BYTES_A_TOKEN = 4
_WORDS = re.compile(r"\s*\S+\s*")


def tokens(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass")) // BYTES_A_TOKEN + 1


def message_text(message: Message) -> str:
    """Return the text of a message; for a list of parts, its text parts."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(str(part["text"]) for part in message.content if "text" in part)


def request_text(request: Request) -> str:
    return "\n".join(message_text(message) for message in request.messages)


def usage_of(request: Request, reply: Reply) -> Usage:
    """Estimate the usage that a provider would state, including arguments of tool calls."""
    called = "".join(json.encode(call.arguments).decode() for call in reply.tool_calls)
    return Usage(
        input_tokens=tokens(request_text(request)),
        output_tokens=min(tokens(reply.text + called), request.max_output_tokens),
        requests=1,
    )


def capped_reply(request: Request, text: str) -> Reply:
    """Return `text` as a reply within the request's output cap."""
    room_bytes = max(0, request.max_output_tokens * BYTES_A_TOKEN - 1)
    data = text.encode("utf-8", "surrogatepass")
    cut = len(data) > room_bytes
    shown = data[:room_bytes].decode("utf-8", "ignore") if cut else text
    reply = Reply(text=shown, finish_reason="length" if cut else "stop", model=request.model)
    return replace(reply, usage=usage_of(request, reply))


async def word_by_word(reply: Reply) -> AsyncGenerator[str | Reply, None]:
    """Yield the words of a reply, then the reply itself."""
    for word in _WORDS.findall(reply.text):
        yield word
    yield reply
