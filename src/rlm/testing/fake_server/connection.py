"""One HTTP/1.1 connection, small enough to misbehave: it can be cut, reset or fed byte by byte.

A web framework would repair most of these faults, so this one reads and writes HTTP itself.
"""

import asyncio
import json
import logging
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from rlm.testing.fake_server.responses import Response

__all__ = ["Connection", "HttpRequest"]

MAX_HEAD_BYTES = 256 * 1024
MAX_BODY_BYTES = 256 * 1024**2
ARRIVAL_SECONDS = 0.02
"""Time for the client to read the first half, before a reset discards what it has not read."""

CONNECTION_FAULTS = frozenset({"close", "cut", "drip", "gzip", "reset_midway", "stale"})
"""Behaviours of a connection rather than of a body."""

_log = logging.getLogger("rlm")


class HttpRequest(Struct, frozen=True):
    """One request, completely received."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    keeps_alive: bool


class _BadRequest(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


Handler = Callable[["Connection", HttpRequest], Awaitable[None]]


class Connection(asyncio.Protocol):
    """Reads requests and hands each to `handle`, which answers it or drops the connection."""

    def __init__(self, number: int, handle: Handler, opened: "set[Connection]") -> None:
        self.number = number
        self.is_stale = False
        """Whether the next request is dropped."""

        self._handle = handle
        self._opened = opened
        self._reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES)
        self._writable = asyncio.Event()
        self._writable.set()

    # -- of the protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._opened.add(self)
        self.task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self._reader.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._opened.discard(self)
        self.task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- requests ----------------------------------------------------------------------------

    async def _serve(self) -> None:
        while not self._transport.is_closing():
            try:
                request = await self._read()
                await self._handle(self, request)
                if not request.keeps_alive:
                    self._transport.close()
            except asyncio.IncompleteReadError:
                return
            except _BadRequest as error:
                await self.send_json({"error": {"message": str(error)}}, error.status)
                self._transport.close()
            except Exception:  # noqa: BLE001 - a bug in a script must not look like a lost network
                _log.exception("the fake server failed to answer a request")
                await self.send_json({"error": {"message": "the script raised an error"}}, 500)
                self._transport.close()

    async def _read(self) -> HttpRequest:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise _BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
        try:
            first, *lines = head.decode("latin-1").strip().split("\r\n")
            method, target, version = first.split(" ")
            headers = dict(_header(line) for line in lines)
            address = urlsplit(target)
        except ValueError:
            raise _BadRequest(HTTPStatus.BAD_REQUEST) from None
        lower = {name.lower(): value.lower() for name, value in headers.items()}
        return HttpRequest(
            method,
            unquote(address.path),
            dict(parse_qsl(address.query, keep_blank_values=True)),
            headers,
            await self._read_body(lower),
            version != "HTTP/1.0" and lower.get("connection") != "close",
        )

    async def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("expect") == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding") == "chunked":
            return await self._read_chunks()
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            raise _BadRequest(HTTPStatus.BAD_REQUEST)
        if int(length) > MAX_BODY_BYTES:
            raise _BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return await self._reader.readexactly(int(length))

    async def _read_chunks(self) -> bytes:
        body = bytearray()
        while True:
            try:
                line = await self._reader.readuntil(b"\r\n")
                size = int(line.partition(b";")[0], 16)
            except (asyncio.LimitOverrunError, ValueError):
                raise _BadRequest(HTTPStatus.BAD_REQUEST) from None
            if not 0 <= size <= MAX_BODY_BYTES - len(body):
                raise _BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            if size == 0:
                while await self._reader.readuntil(b"\r\n") != b"\r\n":
                    pass  # Trailers are ignored.
                return bytes(body)
            body += (await self._reader.readexactly(size + 2))[:-2]

    # -- responses ---------------------------------------------------------------------------

    async def send_json(self, value: Any, status: int = 200, *, has_body: bool = True) -> None:
        body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        self._write_head(status, headers)
        await self._write(body if has_body else b"")

    async def send(
        self, response: Response, behaviours: frozenset[str], pause_seconds: float
    ) -> None:
        """Send a response at once, byte by byte, or half of it."""
        behaviours &= CONNECTION_FAULTS
        gzip = zlib.compressobj(wbits=31) if "gzip" in behaviours else None
        chunked = gzip is not None or response.streamed
        headers = dict(response.headers)
        if gzip is not None:
            headers["Content-Encoding"] = "gzip"
        if chunked:
            headers["Transfer-Encoding"] = "chunked"
        elif response.status != HTTPStatus.NO_CONTENT:
            headers.setdefault("Content-Length", str(len(response.body)))
        self._write_head(response.status, headers)
        for frame in _frames(response, behaviours, pause_seconds):
            if gzip is not None:
                frame = gzip.compress(frame) + gzip.flush(zlib.Z_SYNC_FLUSH)
            await self._write(_chunk(frame) if chunked else frame)
            await asyncio.sleep(pause_seconds)
        if behaviours & {"cut", "reset_midway"}:
            await self._hang_up(by_reset="reset_midway" in behaviours)
            return
        if chunked:
            tail = gzip.flush() if gzip is not None else b""
            await self._write((_chunk(tail) if tail else b"") + b"0\r\n\r\n")
        if "close" in behaviours:
            self._transport.close()

    def _write_head(self, status: int, headers: dict[str, str]) -> None:
        known = status in HTTPStatus._value2member_map_
        phrase = HTTPStatus(status).phrase if known else "Unknown"
        lines = [f"HTTP/1.1 {status} {phrase}", *(f"{k}: {v}" for k, v in headers.items())]
        self._transport.write("\r\n".join([*lines, "", ""]).encode("utf-8", "replace"))

    async def _write(self, data: bytes) -> None:
        if data:
            self._transport.write(data)
            await self._writable.wait()

    async def _hang_up(self, *, by_reset: bool) -> None:
        if by_reset:
            await asyncio.sleep(ARRIVAL_SECONDS)
            self.reset()
        else:
            self._transport.close()

    def reset(self) -> None:
        """End the connection with RST: what the client has not read yet is lost."""
        carrier = self._transport.get_extra_info("socket")
        if carrier is not None:
            no_linger = struct.pack("ii", 1, 0)
            carrier.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
        self._transport.abort()

    def drop(self) -> None:
        """End the connection as if the process had been killed."""
        self._transport.abort()


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or name != name.strip():
        raise ValueError(line)
    return name, value.strip()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _frames(response: Response, behaviours: frozenset[str], pause_seconds: float) -> list[bytes]:
    frames = response.frames
    if behaviours & {"cut", "reset_midway"}:
        frames = list(_half(frames))
    if "drip" in behaviours:
        return [bytes([byte]) for frame in frames for byte in frame]
    if not pause_seconds:
        frames = [b"".join(frames)]
    return [frame for frame in frames if frame]


def _half(frames: list[bytes]) -> Iterator[bytes]:
    """Yield half of the bytes, so that they end in the middle of something."""
    left = sum(map(len, frames)) // 2
    for frame in frames:
        yield frame[:left]
        left -= min(left, len(frame))
