"""What a request asks for, whatever its dialect."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

from msgspec import Struct

__all__ = ["Asked", "DialectName", "read_request", "route"]

DialectName: TypeAlias = Literal["chat", "responses", "anthropic", "gemini"]

ENDINGS: dict[str, DialectName] = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/messages": "anthropic",
}
GEMINI = re.compile(r"/models/(?P<model>[^/:]+):(?P<method>generateContent|streamGenerateContent)$")
DEPLOYMENT = re.compile(r"/deployments/(?P<model>[^/]+)/")

SPOKEN = ("system", "instructions", "systemInstruction", "messages", "input", "contents")
INSIDE = ("content", "parts", "text", "output")
CAPS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")


class Asked(Struct, frozen=True):
    """One request: what it says, and how it wants to be answered."""

    dialect: DialectName
    model: str
    text: str
    stream: bool
    body: dict[str, Any]
    max_output_tokens: int | None = None
    wants_usage: bool = True
    as_list: bool = False
    """A Gemini stream without `alt=sse` comes as one JSON list."""


class Route(Struct, frozen=True):
    """Which dialect a path belongs to, and what the path itself says."""

    dialect: DialectName
    model: str | None = None
    stream: bool = False


def route(path: str) -> Route | None:
    """The dialect of a path, below any prefix: Azure's, a gateway's, a deployment's."""
    for ending, dialect in ENDINGS.items():
        if path.endswith(ending):
            found = DEPLOYMENT.search(path)
            return Route(dialect, unquote(found["model"]) if found else None)
    if found := GEMINI.search(path):
        return Route("gemini", unquote(found["model"]), found["method"].startswith("stream"))
    return None


def read_request(place: Route, data: bytes, query: Mapping[str, str]) -> Asked:
    """The request in a body; ValueError, with the reason, if it is none."""
    try:
        body = json.loads(data)
        text = "\n".join(part for name in SPOKEN for part in _texts(body.get(name)))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except AttributeError:
        raise ValueError("the body is no JSON object") from None
    model = body.get("model", place.model)
    options = body.get("stream_options")
    is_stream = place.stream if place.dialect == "gemini" else body.get("stream") is True
    stated = isinstance(options, dict) and options.get("include_usage") is True
    return Asked(
        dialect=place.dialect,
        model=model if isinstance(model, str) else "unnamed",
        text=text,
        stream=is_stream,
        body=body,
        max_output_tokens=_cap(body),
        wants_usage=place.dialect != "chat" or not is_stream or stated,
        as_list=place.dialect == "gemini" and is_stream and query.get("alt") != "sse",
    )


def _texts(value: Any) -> Iterator[str]:
    """All that is said in a message, a list of them, or a part; names and data are not said."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for name in INSIDE:
            if name in value:
                yield from _texts(value[name])


def _cap(body: dict[str, Any]) -> int | None:
    """The smallest output cap the request names."""
    config = body.get("generationConfig")
    holders = (body, config if isinstance(config, dict) else {})
    caps = [holder.get(name) for holder in holders for name in CAPS]
    return min((cap for cap in caps if type(cap) is int and cap > 0), default=None)
