"""The model server for all engines: the requested address contains the answer.

`address(port, text, delay_ms)` is a base URL whose chat completions all answer `text`, after a
delay. So one process serves every scenario and does almost nothing per request: a complete server
would use as much processor time as the engines to be measured. `SERIAL` in a text becomes another
number each time. Run as a file, it prints its port.
"""

import asyncio
import base64
import itertools
import json
from typing import NamedTuple

__all__ = ["address"]


def address(port: int, text: str, delay_ms: float = 0) -> str:
    """Return a base URL for OpenAI's interface."""
    answer = json.dumps({"text": text, "delay_ms": delay_ms}).encode()
    return f"http://127.0.0.1:{port}/{base64.urlsafe_b64encode(answer).decode().rstrip('=')}/v1"


class Response(NamedTuple):
    """The response for a path: pieces, between which a number goes, and the delay."""

    pieces: list[bytes]
    delay_seconds: float


_SERIAL = b"SERIAL"
_numbers = itertools.count(100_000_000)
_responses: dict[bytes, Response] = {}


def _response(segment: bytes) -> Response:
    answer = json.loads(base64.urlsafe_b64decode(segment + b"=" * (-len(segment) % 4)))
    message = {"role": "assistant", "content": answer["text"]}
    body = json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14},
        }
    ).encode()
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
    size = len(body.replace(_SERIAL, b"100000000"))
    whole = f"{head}{size}\r\n\r\n".encode() + body
    return Response(whole.split(_SERIAL), answer["delay_ms"] / 1_000)


class Connection(asyncio.Protocol):
    """A keep-alive connection without pipelining: one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held = self._held + data if self._held else data
        head, end, body = self._held.partition(b"\r\n\r\n")
        if not end or len(body) < _content_length(head):
            return
        self._held = b""
        segment = head.split(b"/", 2)[1]
        if segment not in _responses:
            _responses[segment] = _response(segment)
        response = _responses[segment]
        if response.delay_seconds:
            self._loop.call_later(response.delay_seconds, self._answer, response)
        else:
            self._answer(response)

    def _answer(self, response: Response) -> None:
        if not self._transport.is_closing():
            self._transport.write(str(next(_numbers)).encode().join(response.pieces))


def _content_length(head: bytes) -> int:
    start = head.lower().find(b"content-length:")
    return int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
