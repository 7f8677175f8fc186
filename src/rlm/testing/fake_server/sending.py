"""Puts an answer on a connection: at once, byte by byte, half of it, or not at all."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlm.testing.fake_server.wire import Wire

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["reset", "send"]

SLOW = frozenset({"close", "cut", "drip", "gzip", "reset_midway", "stale"})
"""Behaviours of a connection rather than of a body."""

ARRIVAL_SECONDS = 0.02
"""Time for the first half to be read, before a reset takes back what was not."""


async def send(
    request: "web.BaseRequest", wire: Wire, behaviours: frozenset[str], pause_seconds: float
) -> "web.StreamResponse":
    """The response, sent or ready to be sent."""
    from aiohttp import web

    behaviours &= SLOW
    if not (wire.streamed or behaviours or pause_seconds):
        return web.Response(status=wire.status, headers=wire.headers, body=wire.body)
    response = web.StreamResponse(status=wire.status, headers=wire.headers)
    if "gzip" in behaviours:
        response.enable_compression(web.ContentCoding.gzip)
    elif not wire.streamed:
        response.content_length = len(wire.body)
    await response.prepare(request)
    await _write(response, wire, behaviours, pause_seconds)
    if behaviours & {"cut", "reset_midway"}:
        await _hang_up(request, by_reset="reset_midway" in behaviours)
    elif "close" in behaviours:
        await response.write_eof()
        if request.transport is not None:
            request.transport.close()
    return response


async def _write(
    response: "web.StreamResponse", wire: Wire, behaviours: frozenset[str], pause_seconds: float
) -> None:
    frames = wire.frames
    if behaviours & {"cut", "reset_midway"}:
        frames = _half(frames)
    if "drip" in behaviours:
        frames = [bytes([byte]) for frame in frames for byte in frame]
    elif not pause_seconds:
        frames = [b"".join(frames)]
    for frame in frames:
        if frame:
            await response.write(frame)
            await asyncio.sleep(pause_seconds)


def _half(frames: list[bytes]) -> list[bytes]:
    """Half of the bytes, so that the end is in the middle of something."""
    room = sum(map(len, frames)) // 2

    def within() -> Iterator[bytes]:
        left = room
        for frame in frames:
            yield frame[:left]
            left -= min(left, len(frame))

    return [frame for frame in within() if frame]


async def _hang_up(request: "web.BaseRequest", *, by_reset: bool) -> None:
    if by_reset:
        await asyncio.sleep(ARRIVAL_SECONDS)
        reset(request)
    elif request.transport is not None:
        request.transport.close()


def reset(request: "web.BaseRequest") -> None:
    """End the connection with RST: nothing that was not read yet will be."""
    if (transport := request.transport) is None:
        return
    carrier = transport.get_extra_info("socket")
    if carrier is not None:
        linger_not = struct.pack("ii", 1, 0)
        carrier.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
    transport.abort()
