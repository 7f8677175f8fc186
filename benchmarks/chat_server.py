"""A minimal chat-completions server: `python chat_server.py 50 [TEXT]`.

It prints its port, then answers every POST with TEXT after the given number of milliseconds. A
complete server would use as much processor time as the clients to be measured, so this one reads
only where a request ends.
"""

import asyncio
import json
import sys

TEXT = "Paris"


def response(text: str) -> bytes:
    """Return the response, which is the same for every request."""
    body = json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": text},
                }
            ],
            "usage": {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14},
        }
    ).encode()
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class Connection(asyncio.Protocol):
    """A keep-alive connection without pipelining: one request at a time."""

    def __init__(self, delay_seconds: float, answer: bytes) -> None:
        self._delay_seconds = delay_seconds
        self._response = answer
        self._loop = asyncio.get_running_loop()
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        head, end, body = self._held.partition(b"\r\n\r\n")
        if not end or len(body) < _content_length(head):
            return
        self._held = b""
        if self._delay_seconds:
            self._loop.call_later(self._delay_seconds, self._answer)
        else:
            self._answer()

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._response)


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def main(delay_ms: float, text: str = TEXT) -> None:
    loop, answer = asyncio.get_running_loop(), response(text)
    server = await loop.create_server(
        lambda: Connection(delay_ms / 1000, answer), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), *sys.argv[2:]))
