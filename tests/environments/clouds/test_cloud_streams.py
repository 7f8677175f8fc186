"""The streams by themselves: what gathers is sent together, in order, and failures are reported."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rlm.environments._cloud_streams import FirstTries, Inbox, Outbox, until_failure
from rlm.errors import SessionDied


class Wire:
    """A slow request: each waits to be let through."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.turns = asyncio.Semaphore(0)

    async def write(self, data: bytes) -> None:
        await self.turns.acquire()
        self.sent.append(data)


async def until_idle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_data_written_during_a_request_is_sent_with_the_next() -> None:
    wire = Wire()
    outbox = Outbox(wire.write)
    for number in range(10):
        await outbox.send(b"%d" % number)
        await until_idle()
    wire.turns.release()
    wire.turns.release()
    await until_idle()
    assert wire.sent == [b"0", b"123456789"]
    await outbox.close()


async def test_sending_much_data_waits_and_splits_it_into_requests() -> None:
    wire = Wire()
    outbox = Outbox(wire.write)
    data = bytes(range(256)) * (10 << 10)
    sending = asyncio.create_task(outbox.send(data))
    await until_idle()
    assert not sending.done()
    for _ in range(3):
        wire.turns.release()
    await sending
    await until_idle()
    assert b"".join(wire.sent) == data
    assert max(map(len, wire.sent)) == 1 << 20
    await outbox.close()


async def test_a_failure_is_raised_by_the_next_send_and_by_waiting_ones() -> None:
    async def write(_: bytes) -> None:
        raise ConnectionResetError("gone")

    outbox = Outbox(write)
    with pytest.raises(SessionDied, match="no longer accepts input: gone"):
        await outbox.send(bytes(3 << 20))
    with pytest.raises(SessionDied, match="gone"):
        await outbox.send(b"x")
    await outbox.close()


async def test_an_inbox_makes_the_sdk_wait_for_its_reader() -> None:
    inbox, taken = Inbox(), 0

    async def program() -> None:
        nonlocal taken
        for number in range(200):
            await inbox.take(str(number))
            taken += 1
        raise RuntimeError("the end")

    inbox.until(program())
    await until_idle()
    assert taken < 200
    async with asyncio.timeout(60):
        assert [text async for text in inbox] == [str(number) for number in range(200)]
        assert [text async for text in inbox] == []
    assert str(inbox.outcome) == "the end"
    await inbox.close()


async def endless() -> AsyncIterator[bytes]:
    yield b"first"
    await asyncio.Event().wait()


async def test_output_ends_when_input_fails() -> None:
    failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    pieces = until_failure(endless(), failed)
    assert await anext(pieces) == b"first"
    failed.set_result(ConnectionResetError("gone"))
    with pytest.raises(ConnectionResetError, match="gone"):
        await anext(pieces)


async def test_an_error_of_the_output_takes_precedence_over_one_of_the_input() -> None:
    failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    failed.set_result(ConnectionResetError("gone"))

    async def ending() -> AsyncIterator[bytes]:
        yield b"first"
        await until_idle()
        raise RuntimeError("out of memory")

    pieces = until_failure(ending(), failed)
    assert await anext(pieces) == b"first"
    with pytest.raises(RuntimeError, match="out of memory"):
        await anext(pieces)


async def test_only_the_first_input_is_retried() -> None:
    errors = [OSError("open: no pipe"), OSError("open: no pipe")]
    sent: list[bytes] = []

    async def write(data: bytes) -> None:
        if errors:
            raise errors.pop()
        sent.append(data)

    tries = FirstTries(write, "no pipe")
    await tries.send(b"1")
    assert sent == [b"1"]
    errors.append(OSError("open: no pipe"))
    with pytest.raises(OSError, match="no pipe"):
        await tries.send(b"2")
    errors.append(OSError("something else"))
    with pytest.raises(OSError, match="something else"):
        await FirstTries(write, "no pipe").send(b"3")
    assert sent == [b"1"]
