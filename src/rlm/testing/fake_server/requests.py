"""What requests ask for, in any dialect, and the log of them."""

import json
import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

from msgspec import Struct

__all__ = ["Asked", "DialectName", "Log", "Received", "Route", "read_request", "route"]

DialectName: TypeAlias = Literal["chat", "responses", "anthropic", "gemini", "converse"]

ENDINGS: dict[str, DialectName] = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/messages": "anthropic",
}
GEMINI = re.compile(r"/models/(?P<model>[^/:]+):(?P<method>generateContent|streamGenerateContent)$")
CONVERSE = re.compile(r"/model/(?P<model>.+)/(?P<method>converse|converse-stream)$")
DEPLOYMENT = re.compile(r"/deployments/(?P<model>[^/]+)/")

SPOKEN = ("system", "instructions", "systemInstruction", "messages", "input", "contents")
INSIDE = ("content", "parts", "text", "output", "toolResult")
CAPS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "maxTokens")

KEPT_REQUESTS = 10_000
KEPT_BYTES = 256 * 1024**2
HARMLESS = frozenset(
    {
        "accept",
        "accept-encoding",
        "anthropic-version",
        "connection",
        "content-length",
        "content-type",
        "host",
        "user-agent",
    }
)
"""Headers whose values are shown; any other may contain a key."""


class Asked(Struct, frozen=True):
    """One request: its text, and how it wants to be answered."""

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
    """The dialect of a path, and what the path itself says."""

    dialect: DialectName
    model: str | None = None
    stream: bool = False


def route(path: str) -> Route | None:
    """Return the dialect of a path, below any prefix: Azure's, a gateway's, a deployment's."""
    for ending, dialect in ENDINGS.items():
        if path.endswith(ending):
            found = DEPLOYMENT.search(path)
            return Route(dialect, unquote(found["model"]) if found else None)
    if found := GEMINI.search(path):
        return Route("gemini", unquote(found["model"]), found["method"].startswith("stream"))
    if found := CONVERSE.search(path):
        return Route("converse", unquote(found["model"]), found["method"] == "converse-stream")
    return None


def read_request(place: Route, data: bytes, query: Mapping[str, str]) -> Asked:
    """Parse a body; raise ValueError, with the reason, if it is not a request."""
    try:
        body = json.loads(data)
        text = "\n".join(part for name in SPOKEN for part in _texts(body.get(name)))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except AttributeError:
        raise ValueError("the body is not a JSON object") from None
    model = body.get("model", place.model)
    options = body.get("stream_options")
    by_path = place.dialect in {"gemini", "converse"}
    is_stream = place.stream if by_path else body.get("stream") is True
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
    """Yield the texts of a message, a list of them, or a part; names and data do not count."""
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
    """Return the smallest output limit that the request names."""
    configs = (body.get("generationConfig"), body.get("inferenceConfig"))
    holders = (body, *(config for config in configs if isinstance(config, dict)))
    caps = [holder.get(name) for holder in holders for name in CAPS]
    return min((cap for cap in caps if type(cap) is int and cap > 0), default=None)


# -- the log --------------------------------------------------------------------------------------


class Received(Struct):
    """One request. `status` is None until it is answered.

    `disconnected`: the client left before it was answered.
    """

    number: int
    path: str
    headers: Mapping[str, str]
    asked: Asked | None = None
    status: int | None = None
    behaviours: frozenset[str] = frozenset()
    disconnected: bool = False
    connection: int = 0
    size_bytes: int = 0
    query: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Received({self.number}, {self.path!r}, status={self.status})"

    def public(self) -> dict[str, Any]:
        """Return it as plain data, without values that may be secrets."""
        asked = self.asked
        return {
            "number": self.number,
            "path": self.path,
            "headers": {
                name: value if name.lower() in HARMLESS else "[redacted]"
                for name, value in self.headers.items()
            },
            "dialect": asked and asked.dialect,
            "model": asked and asked.model,
            "stream": asked and asked.stream,
            "body": asked and asked.body,
            "status": self.status,
            "behaviours": sorted(self.behaviours),
            "disconnected": self.disconnected,
            "connection": self.connection,
        }


class Log:
    """The latest requests, and counts of all. It can be read from other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[Received] = deque()
        self._kept_bytes = 0
        self.count = 0
        self.in_flight = 0
        self.max_in_flight = 0

    @property
    def requests(self) -> list[Received]:
        """The requests in order of arrival; only the latest if there are very many."""
        with self._lock:
            return list(self._kept)

    def begin(self, received: Received) -> None:
        with self._lock:
            self.count += 1
            self.in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self.in_flight)
            self._kept.append(received)
            self._kept_bytes += received.size_bytes
            while len(self._kept) > KEPT_REQUESTS or (
                self._kept_bytes > KEPT_BYTES and len(self._kept) > 1
            ):
                self._kept_bytes -= self._kept.popleft().size_bytes

    def end(self) -> None:
        with self._lock:
            self.in_flight -= 1

    def forget(self) -> None:
        """Forget all requests except those in flight."""
        with self._lock:
            self._kept.clear()
            self._kept_bytes = self.count = 0
            self.max_in_flight = self.in_flight

    def public(self) -> dict[str, Any]:
        """Return the answer to `/_requests`."""
        return {
            "count": self.count,
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "requests": [each.public() for each in self.requests],
        }
