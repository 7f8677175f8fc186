"""Bodies of requests: measured while they come, then read as a type or refused with a reason."""

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from rlm.server.errors import ApiError, bad_request, too_large
from rlm.server.settings import Settings

__all__ = ["body_of", "decoded", "limited"]

LARGE_BYTES = 1 << 20
"""Larger bodies are decoded in a thread: others are being answered meanwhile."""

T = TypeVar("T")
_MISTAKE = re.compile(r"(?P<what>.*?)(?: - at `(?P<key>key in )?\$(?P<where>.*)`)?", re.DOTALL)
_FIELD = re.compile(r"field `([^`]*)`")


async def limited(request: Request, most_bytes: int, seconds: float) -> AsyncGenerator[bytes, None]:
    """The body in pieces, up to so many bytes and so many seconds without an end."""
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated[:20]) > most_bytes:
        raise _too_large(most_bytes)
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most_bytes:
                    raise _too_large(most_bytes)
                yield chunk
    except TimeoutError:
        raise ApiError(
            408, f"the request did not arrive within {seconds:g} s", code="request_timeout"
        ) from None


async def body_of(request: Request, settings: Settings) -> bytes:
    """A JSON body; whatever says that it is something else is refused unread."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            415,
            "the body must be JSON, with the header `Content-Type: application/json`",
            code="unsupported_media_type",
        )
    chunks = limited(request, settings.max_body_bytes, settings.body_seconds)
    return b"".join([chunk async for chunk in chunks])


async def decoded(request: Request, settings: Settings, kind: type[T]) -> T:
    """The body as that type; what is wrong with it names the field."""
    body = await body_of(request, settings)
    try:
        if len(body) < LARGE_BYTES:
            return _read(body, kind)
        return await asyncio.to_thread(lambda: _read(body, kind))
    except msgspec.ValidationError as error:
        raise _mistake(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}", code="invalid_json") from None


def _read(body: bytes, kind: type[T]) -> T:
    """JSON knows one kind of number: 2.0 is a whole one, too."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
    return msgspec.convert(_with_whole_numbers(msgspec.json.decode(body)), kind)


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_whole_numbers(each) for each in value]
    if isinstance(value, dict):
        return {name: _with_whole_numbers(each) for name, each in value.items()}
    return value


def _mistake(text: str) -> ApiError:
    found = _MISTAKE.fullmatch(text)
    what, where = (found["what"], found["where"] or "") if found else (text, "")
    missing = _FIELD.search(what)
    if missing is not None:
        where = f"{where}.{missing[1]}"
    param = where.lstrip(".") or None
    return bad_request(f"{what}{f' at {param}' if param else ''}", param, "invalid_type")


def _too_large(most_bytes: int) -> ApiError:
    return too_large(
        f"a request may have {most_bytes:,} bytes here; upload what is larger to /v1/files, and "
        "name it in rlm.file_ids"
    )
