"""The socket on the event loop: order, room, descriptors, and both ways to end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.environments._frames import Stream
from rlm.environments._pumped import PumpedStream, stream_over
from tests.other_systems import WindowsLoop

KINDS = [Stream, PumpedStream]


class Talk:
    """A stream, the other end of its socket, and what its owner received."""

    def __init__(self, kind: type[Stream] = Stream) -> None:
        ours, self.end = socket.socketpair()
        self.end.setblocking(False)
        self.received = b""
        self.ends = 0
        self.stream = kind(ours, self._on_data, self._on_end)
        self.stream.read(True)

    def _on_data(self, data: bytes) -> None:
        self.received += data

    def _on_end(self) -> None:
        self.ends += 1

    async def read(self, size: int) -> bytes:
        """Return this many bytes of what the stream sent."""
        data = b""
        while len(data) < size:
            try:
                data += self.end.recv(size - len(data))
            except BlockingIOError:
                await asyncio.sleep(0)
        return data

    async def until(self, ends: int = 0, received: int = 0) -> None:
        while self.ends < ends or len(self.received) < received:
            await asyncio.sleep(0)

    def close(self) -> None:
        self.stream.close()
        self.end.close()


@pytest.fixture(params=KINDS, ids=["watched", "pumped"])
async def talk(request: pytest.FixtureRequest) -> AsyncIterator[Talk]:
    made = Talk(request.param)
    yield made
    made.close()
    await asyncio.sleep(0)


@pytest.fixture
async def sending() -> AsyncIterator[Talk]:
    """A talk over a stream that can send descriptors."""
    made = Talk()
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
@given(pieces=st.lists(st.binary(min_size=1, max_size=300_000), min_size=1, max_size=6))
def test_data_arrives_in_order(kind: type[Stream], pieces: list[bytes]) -> None:
    async def talk() -> None:
        made = Talk(kind)
        for piece in pieces:
            made.stream.write(piece)
        assert await made.read(sum(map(len, pieces))) == b"".join(pieces)
        await made.stream.until_room()
        made.close()

    asyncio.run(talk())


async def test_a_slow_reader_fills_the_stream_until_it_reads(talk: Talk) -> None:
    talk.stream.write(b"x")
    assert not talk.stream.is_full
    talk.stream.write(b"y" * 5_000_000)
    assert talk.stream.is_full
    waiting = asyncio.create_task(talk.stream.until_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await talk.read(5_000_001)
    await waiting
    assert not talk.stream.is_full


async def test_descriptors_arrive_with_their_own_bytes(sending: Talk) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    sending.stream.write(b"a" * 1_000_000)
    sending.stream.write(b"b" * 10, [null])
    sending.stream.write(b"c")
    assert await sending.read(1_000_000) == b"a" * 1_000_000
    await sending.stream.until_room()
    os.close(null)
    data, fds, _, _ = socket.recv_fds(sending.end, 100, 8)
    assert (data[:10], len(fds)) == (b"b" * 10, 1)
    os.close(fds[0])


async def test_paused_reading_resumes_where_it_stopped(talk: Talk) -> None:
    talk.stream.read(False)
    talk.stream.read(False)
    talk.end.send(b"later")
    for _ in range(5):
        await asyncio.sleep(0)
    assert talk.received == b""
    talk.stream.read(True)
    await talk.until(received=5)
    assert talk.received == b"later"


async def test_the_end_is_reported_after_all_data(talk: Talk) -> None:
    talk.end.send(b"last words")
    talk.end.close()
    talk.stream.write(b"nobody reads this")
    await talk.until(ends=1)
    assert talk.received == b"last words"
    talk.stream.write(b"nor this")
    talk.stream.read(True)
    talk.stream.close()
    assert talk.ends == 1


async def test_closing_a_stream_reports_no_end(talk: Talk) -> None:
    talk.stream.write(b"x" * 5_000_000)
    talk.stream.close()
    talk.stream.close()
    await talk.stream.until_room()
    await asyncio.sleep(0)
    assert talk.ends == 0


async def test_a_descriptor_that_is_closed_too_early_ends_the_stream(sending: Talk) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    sending.stream.write(b"x" * 5_000_000)
    sending.stream.write(b"y", [null])
    os.close(null)
    await sending.read(5_000_000)
    await sending.until(ends=1)
    assert not sending.stream.is_full


async def test_a_bad_descriptor_raises_in_the_caller(sending: Talk) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        sending.stream.write(b"x", [1_000_000])


def test_the_event_loop_determines_the_kind_of_stream() -> None:
    async def kind() -> type[Stream]:
        ours, theirs = socket.socketpair()
        with theirs:
            made = stream_over(ours, lambda _: None, lambda: None)
            made.close()
        return type(made)

    assert asyncio.run(kind()) is Stream
    with asyncio.Runner(loop_factory=WindowsLoop) as runner:
        assert runner.run(kind()) is PumpedStream
