"""What the dialects of model servers share: a protocol, message parts, sampling options."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from rlm import models
from rlm._util.off_loop import off_loop
from rlm._util.text import sendable
from rlm.clients._fields import merged_body, parse
from rlm.clients._http import Endpoint
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, ModelInfo, Reply, Request

__all__ = [
    "EFFORTS",
    "EMPTY",
    "Dialect",
    "ErrorReport",
    "HttpClient",
    "Image",
    "Streamed",
    "after_instructions",
    "given_options",
    "image_of",
    "is_blank",
    "late_instructions",
    "output_cap",
    "parts_of",
    "refuse",
    "same_text",
    "schema_of",
    "stops_of",
    "thinking",
]

EMPTY = "(empty)"
"""Replaces an empty turn, which providers refuse; omitting the turn would join its neighbours."""


class Image(NamedTuple):
    """An image as base64 `data`, or its URL."""

    media_type: str | None
    data: str | None = None
    url: str = ""


def parts_of(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a message's content as parts, without blank texts, which providers refuse."""
    if isinstance(content, str):
        return [] if is_blank(content) else [{"type": "text", "text": content}]
    for part in content:
        if not isinstance(part, dict):
            raise ConfigError(f"a content part must be a dict, not {type(part).__name__}")
    return [
        part for part in content if part.get("type") != "text" or not is_blank(part.get("text"))
    ]


def is_blank(text: Any) -> bool:
    return isinstance(text, str) and not text.strip()


def same_text(one: str, other: str) -> bool:
    """Return whether two texts are the same on the wire, where lone surrogates are replaced."""
    return one == other or sendable(one) == sendable(other)


def after_instructions(messages: Sequence[Message]) -> int:
    """Count the system messages at the beginning."""
    for number, message in enumerate(messages):
        if message.role != "system":
            return number
    return len(messages)


def late_instructions(message: Message) -> list[dict[str, Any]]:
    """Return a system message among the turns as parts of a user's turn.

    Moving it to the front would change the beginning, on which caches and signatures depend.
    """
    parts = parts_of(message.content)
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    if not texts or len(texts) < len(parts):
        return parts
    text = "\n\n".join(texts)
    return [{"type": "text", "text": f"<system>\n{text}\n</system>"}]


def image_of(part: dict[str, Any]) -> Image | None:
    """Return the image in a neutral part; None for other parts, including native images."""
    if part.get("type") != "image" or not ("data" in part or "url" in part):
        return None
    if "data" in part:
        return _with_type(part.get("media_type"), part["data"])
    url = part["url"]
    if not isinstance(url, str):
        raise ConfigError("the url of an image part must be a string")
    if not url.startswith("data:"):
        return Image(part.get("media_type"), url=url)
    about, comma, data = url.removeprefix("data:").partition(",")
    if not comma or not about.endswith(";base64"):
        raise ConfigError("an image's data URL must be base64-encoded: data:image/png;base64,...")
    return _with_type(about.removesuffix(";base64") or part.get("media_type"), data)


def _with_type(media_type: Any, data: Any) -> Image:
    if not isinstance(media_type, str) or not isinstance(data, str):
        raise ConfigError("an image part needs a media_type, e.g. image/png, and base64 data")
    return Image(media_type, data)


CAP_NAMES = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
COUNT_NAMES = ("n", "candidate_count", "candidateCount")
LEFT_OUT = frozenset({"stream", "stream_options", "prompt_cache_key", "safety_identifier"})
"""Options that change nothing; `stream` follows from the method that is called."""

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
SMALLEST_BUDGET = 1024


def given_options(sampling: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the options; None values are dropped, and `extra_body` is merged."""
    options = {
        name: value
        for name, value in merged_body(sampling).items()
        if value is not None and name not in LEFT_OUT
    }
    for name in COUNT_NAMES:
        if options.pop(name, 1) != 1:
            raise ConfigError(
                f"sampling {name} must be 1: each request gets one reply and is budgeted as one"
            )
    return options


def output_cap(request: Request, *holders: dict[str, Any]) -> int:
    """Return the request's cap, or a smaller one that is removed from the options."""
    cap = request.max_output_tokens
    for holder in holders:
        for name in holder.keys() & set(CAP_NAMES):
            asked = holder.pop(name)
            if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
                raise ConfigError(f"sampling {name} must be a positive integer, not {asked!r}")
            cap = min(cap, asked)
    return cap


def refuse(options: dict[str, Any], provider: str, names: Iterable[str]) -> None:
    """Raise for options without an equivalent; drop those that change nothing."""
    for name in names:
        value = options.pop(name, None)
        if value or (name == "seed" and value is not None):
            raise ConfigError(
                f"{provider} has no equivalent of the sampling option {name!r}: leave it out"
            )


def stops_of(options: dict[str, Any], *names: str) -> list[str]:
    """Return the stop sequences under any of these names, each a text or a list of texts."""
    found: list[str] = []
    for name in names:
        given = options.pop(name, [])
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise ConfigError(f"sampling {name} must be a string or a list of strings")
        found += texts
    return found


def schema_of(response_format: Any) -> dict[str, Any] | None:
    """Return the JSON schema that an OpenAI `response_format` asks for.

    None means plain text; an empty schema means any JSON (`json_object`).
    """
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {}
    holder = response_format.get("json_schema") if kind == "json_schema" else None
    schema = holder.get("schema") if isinstance(holder, dict) else None
    if not isinstance(schema, dict):
        raise ConfigError(
            "sampling response_format must be {'type': 'json_schema', 'json_schema': "
            "{'name': ..., 'schema': {...}}}, or of type 'json_object' or 'text'"
        )
    return schema


def thinking(wanted: int, cap: int) -> int | None:
    """Return a thinking budget that leaves room to answer; None if there is no room.

    The cap may shrink during a run: a reply with less thinking is better than none.
    """
    budget = min(wanted, cap * 3 // 4)
    return budget if budget >= SMALLEST_BUDGET else None


_Read = TypeVar("_Read")

ErrorReport = tuple[int | None, Any]
"""An error that came with status 200: the status it should have had, if known, and its body."""


class Streamed(Protocol):
    """Collects the events of a stream into the reply that a plain request would get."""

    @property
    def complete(self) -> bool:
        """Return whether the server finished."""

    def add(self, event: dict[str, Any]) -> str:
        """Add one event, and return the text it adds."""

    def finish(self) -> None:
        """Handle `[DONE]`, which some servers send instead of a last event."""

    def reply(self) -> Reply:
        """Return the whole reply; raise ValueError if there is none."""


class Dialect(Protocol):
    """A way to write requests and read replies."""

    def path(self, request: Request, *, stream: bool) -> str:
        """Return where to POST, below the base URL."""

    def body(self, request: Request, *, stream: bool) -> bytes:
        """Return the JSON to send, with the output cap; sampling can only lower it."""

    def reply(self, payload: dict[str, Any]) -> Reply:
        """Return the reply in a decoded response; raise ValueError if there is none."""

    def streamed(self) -> Streamed:
        """Return a collector for one stream."""

    def error_in(self, payload: dict[str, Any]) -> ErrorReport | None:
        """Return the error that a response or event of status 200 reports, if any."""


EXTRAS = {"extra_headers": "headers", "extra_query": "query"}
"""Sampling options that belong to the request around the body, as OpenAI's package names them."""


def _without_extras(request: Request) -> tuple[Request, dict[str, Any]]:
    """Return the request without the options in `EXTRAS`, and those options under our names."""
    if not EXTRAS.keys() & request.sampling.keys():
        return request, {}
    sampling, extras = dict(request.sampling), dict[str, Any]()
    for name in EXTRAS.keys() & sampling.keys():
        value = sampling.pop(name)
        if not isinstance(value, Mapping | None):
            raise ConfigError(f"sampling {name} must be a dict, not {type(value).__name__}")
        extras[EXTRAS[name]] = value
    return replace(request, sampling=sampling), extras


class HttpClient:
    """A `Client` for one server that speaks one dialect. It never retries on its own."""

    def __init__(
        self,
        endpoint: Endpoint,
        dialect: Dialect,
        *,
        provider: str = "",
        infos: Mapping[str, ModelInfo] | None = None,
    ) -> None:
        """`infos` describes its models; other models are looked up by provider."""
        self._endpoint = endpoint
        self._dialect = dialect
        self._provider = provider
        self._infos = dict(infos or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._endpoint.host!r})"

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        """Send one request, and return its reply."""
        request, extras = _without_extras(request)
        async with self._endpoint.post(
            self._dialect.path(request, stream=False),
            await self._body(request, stream=False),
            model=request.model,
            timeout_seconds=timeout_seconds,
            **extras,
        ) as response:
            return self._reply(request, await response.read())

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        """Yield the text piece by piece, then the whole reply."""
        request, extras = _without_extras(request)
        async with self._endpoint.post(
            self._dialect.path(request, stream=True),
            await self._body(request, stream=True),
            model=request.model,
            timeout_seconds=timeout_seconds,
            **extras,
        ) as response:
            if response.is_json:  # a server that does not stream
                reply = self._reply(request, await response.read())
                yield reply.text
                yield reply
                return
            streamed = self._dialect.streamed()
            async with aclosing(response.events()) as events:
                async for data in events:
                    if data == "[DONE]":
                        streamed.finish()
                        await response.drain()
                        break
                    add = partial(streamed.add, self._parsed(request, data))
                    if text := self._checked(request, add):
                        yield text
            if not streamed.complete:
                raise self._endpoint.broken(request.model, "the stream was cut off")
            yield self._checked(request, streamed.reply)

    async def _body(self, request: Request, *, stream: bool) -> bytes:
        return await off_loop(request.chars, lambda: self._dialect.body(request, stream=stream))

    def info(self, model: str) -> ModelInfo:
        return self._infos.get(model) or models.about(self._provider, model)

    async def close(self) -> None:
        """Close the connections of every event loop this client was used on."""
        await self._endpoint.close()

    def _reply(self, request: Request, data: bytes) -> Reply:
        payload = self._parsed(request, data)
        return self._checked(request, lambda: self._dialect.reply(payload))

    def _checked(self, request: Request, read: Callable[[], _Read]) -> _Read:
        try:
            return read()
        except ValueError as error:
            raise self._endpoint.broken(request.model, str(error)) from None

    def _parsed(self, request: Request, data: bytes | str) -> dict[str, Any]:
        """Decode an object; raise ModelError for errors that servers report with status 200."""
        try:
            payload = parse(data)
        except ValueError:
            payload = None
        if not isinstance(payload, dict):
            raise self._endpoint.broken(request.model, "the response is malformed or cut off")
        report = self._dialect.error_in(payload)
        if report is not None:
            raise self._reported(request, *report)
        return payload

    def _reported(self, request: Request, status: int | None, said: Any) -> ModelError:
        if status is None:
            return self._endpoint.broken(request.model, f"the server reported: {said}")
        return self._endpoint.error(request.model, status, said, ambiguous=True)
