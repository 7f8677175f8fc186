"""The bytes of an answer: what its dialect would send, with the faults of its behaviours."""

import json
from email.utils import formatdate
from time import time
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rlm.testing.fake_server.dialects import WRITERS
from rlm.testing.fake_server.dialects.converse import frame
from rlm.testing.fake_server.dialects.event import DONE, Event
from rlm.testing.fake_server.reply import FakeReply, make_reply
from rlm.testing.fake_server.requests import Asked
from rlm.testing.fake_server.script import Answer

__all__ = ["Response", "error_response", "make_response"]

JSON, STREAM, PLAIN = "application/json", "text/event-stream", "text/plain"
FRAMED = "application/vnd.amazon.eventstream"
PAGE = "<!doctype html>\n<html><head><title>{0}</title></head><body><h1>{0}</h1></body></html>\n"
BROKEN = '{"choices": [{"message": {"content": "half a'
REDIRECT = 307


class Response(Struct, frozen=True):
    """A response: its frames are sent one after the other; a plain one has a single frame."""

    status: int
    headers: dict[str, str]
    frames: list[bytes]
    streamed: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.frames)


def error_response(asked: Asked, status: int, message: str) -> Response:
    """Return a refusal in the form of the request's dialect."""
    return _plain(status, _dumped(WRITERS[asked.dialect].error(status, message)))


def make_response(number: int, asked: Asked, answer: Answer) -> Response:
    """Return the whole response to one request."""
    behaviours = answer.behaviours
    response = _replaced(answer, behaviours)
    if response is None:
        status = answer.status
        if "error_event" not in behaviours and (status >= 300 or answer.error):
            status = status if status >= 300 else 500
            response = error_response(asked, status, answer.error or f"scripted status {status}")
        else:
            response = _make_response(make_reply(number, asked, answer), asked, answer)
    if "truncated" in behaviours:
        response = _truncated(response)
    if "wrong_type" in behaviours:
        response = replace(response, headers={**response.headers, "Content-Type": PLAIN})
    return replace(response, headers={**response.headers, **_waiting(answer), **answer.headers})


def _replaced(answer: Answer, behaviours: frozenset[str]) -> Response | None:
    """Return a response that replaces the dialect's, if a behaviour asks for one."""
    if "redirect" in behaviours:
        status = answer.status if 300 <= answer.status < 400 else REDIRECT
        return Response(status, {"Location": answer.location}, [b""])
    if "no_content" in behaviours:
        return Response(204, {}, [b""])
    if "empty_body" in behaviours:
        return _plain(answer.status, b"")
    if "html" in behaviours:
        page = PAGE.format(answer.error or "Bad gateway").encode()
        return _plain(answer.status, page, "text/html; charset=utf-8")
    return None


def _make_response(reply: FakeReply, asked: Asked, answer: Answer) -> Response:
    behaviours = answer.behaviours
    if asked.stream and "unstreamed" not in behaviours:
        return _streamed(reply, asked, answer)
    if "malformed" in behaviours:
        return _plain(200, BROKEN.encode())
    writer = WRITERS[asked.dialect]
    if "error_event" in behaviours:
        return _plain(200, _dumped(writer.failed(reply, *_reported(answer))))
    return _plain(200, _dumped(writer.plain(reply)))


def _streamed(reply: FakeReply, asked: Asked, answer: Answer) -> Response:
    behaviours, writer = answer.behaviours, WRITERS[asked.dialect]
    events = writer.events(reply)
    middle = (len(events) + 1) // 2
    if "malformed" in behaviours:
        events[middle:middle] = [Event(BROKEN, events[-1].name)]
    if "error_event" in behaviours:
        events[middle:] = [writer.error_event(*_reported(answer))]
    if "no_done" in behaviours:
        events = [event for event in events if event is not DONE]
    if asked.as_list:
        return _plain(200, _dumped([event.payload for event in events]))
    if asked.dialect == "converse":
        frames = [frame(event.name or "", _data(event)) for event in events]
        return Response(200, {"Content-Type": FRAMED}, frames, streamed=True)
    frames = [_frame(event, odd="crlf" in behaviours) for event in events]
    headers = {"Content-Type": STREAM, "Cache-Control": "no-cache"}
    return Response(200, headers, frames, streamed=True)


def _reported(answer: Answer) -> tuple[int, str]:
    status = answer.status if answer.status >= 400 else 500
    return status, answer.error or "scripted error"


def _data(event: Event) -> bytes:
    payload = event.payload
    return payload.encode() if isinstance(payload, str) else _dumped(payload)


def _frame(event: Event, *, odd: bool) -> bytes:
    data = _data(event)
    name = b"" if event.name is None else b"event: " + event.name.encode() + b"\n"
    if not odd:
        return name + b"data: " + data + b"\n\n"
    lines = b": keep-alive\nid: 7\nretry: 1000\n" + name + b"data:" + data + b"\n\n"
    return lines.replace(b"\n", b"\r\n")


def _truncated(response: Response) -> Response:
    if response.streamed:
        return replace(response, frames=response.frames[: len(response.frames) // 2])
    return replace(response, frames=[response.body[: len(response.body) // 2]])


def _waiting(answer: Answer) -> dict[str, str]:
    """Return the header that says when to try again, in the form that the answer names."""
    if (seconds := answer.retry_after) is None:
        return {}
    if answer.retry_after_form == "milliseconds":
        return {"retry-after-ms": f"{seconds * 1000:g}"}
    if answer.retry_after_form == "date":
        return {"Retry-After": formatdate(time() + seconds, usegmt=True)}
    return {"Retry-After": f"{seconds:g}"}


def _plain(status: int, body: bytes, content_type: str = JSON) -> Response:
    return Response(status, {"Content-Type": content_type}, [body])


def _dumped(value: Any) -> bytes:
    """Encode as JSON without escaping, so that characters take several bytes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
