"""The host's end of the stream, with a worker that the test plays: fds, frames, tasks, timers."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from rlm.environments._clock import CellClock, ProcessState
from rlm.environments._session import WorkerSession, greeting_of
from rlm.errors import SessionDied
from rlm.worker import wire


class FakeProcess:
    """A worker process that ends when it is killed."""

    def __init__(self) -> None:
        self.killed = asyncio.Event()
        self.interrupts = 0

    def interrupt(self) -> None:
        self.interrupts += 1

    def kill(self) -> None:
        self.killed.set()

    async def signals_sent(self) -> None:
        return

    async def state(self) -> ProcessState | None:
        return None

    def stream_ended(self) -> None:
        self.kill()

    async def wait(self) -> str:
        await self.killed.wait()
        return "was killed"

    async def clean_up(self) -> None:
        return


class EchoHost:
    async def answer(
        self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
    ) -> tuple[dict[str, Any], Sequence[str]]:
        return {"failed": {}}, parts


class Ends:
    """A session, and the worker's end of its socket with everything that was read from it."""

    def __init__(self, session: WorkerSession, end: socket.socket) -> None:
        self.session = session
        self.end = end
        self.decoder = wire.Decoder(wire.TO_WORKER, wire.MAX_TO_WORKER_BYTES)
        self.fds: list[int] = []

    async def receive(self) -> wire.Frame:
        while (frame := self.decoder.pop()) is None:
            try:
                data, fds, _, _ = socket.recv_fds(self.end, 1 << 16, 8)
            except BlockingIOError:
                await asyncio.sleep(0.001)
                continue
            self.fds += fds
            self.decoder.feed(data)
        return frame

    def reply(self, kind: int, request_id: int, *parts: bytes) -> None:
        self.end.sendall(wire.encode(kind, request_id, list(parts)))


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    theirs.sendall(wire.encode(wire.READY, 1, [b"{}"]))
    session = await WorkerSession.connect(ours, EchoHost(), FakeProcess(), greeting_of({}))
    made = Ends(session, theirs)
    assert (await made.receive()).type == wire.INIT
    yield made
    await session.close()
    theirs.close()
    for fd in made.fds:
        os.close(fd)


@pytest.fixture
def null() -> Iterator[int]:
    """A file descriptor to send: /dev/null."""
    fd = os.open(os.devnull, os.O_RDONLY)
    yield fd
    os.close(fd)


DONE = [wire.DONE_COUNTS.pack(0, 0, 0, 0, False), b"", b"", b"", b""]


async def test_a_descriptor_travels_with_its_frame_and_frames_keep_their_order(
    ends: Ends, null: int
) -> None:
    """Something large waits to be sent before, and the kernel takes the frame piece by piece."""
    before = wire.encode(wire.LOAD, 0, [b"a" * 3_000_000])
    frame = wire.encode(wire.LOAD_SHARED, 2, [b"b" * 3_000_000])
    ends.session._stream.write(before)
    ends.session._stream.write(frame, [null])
    first = await ends.receive()
    second = await ends.receive()
    assert os.fstat(ends.fds[0]).st_rdev == os.fstat(null).st_rdev
    assert (first.type, second.type, len(ends.fds)) == (wire.LOAD, wire.LOAD_SHARED, 1)
    assert second.parts == [b"b" * 3_000_000]


async def test_a_full_socket_is_waited_for(ends: Ends, null: int) -> None:
    filling = wire.encode(wire.LOAD, 0, [b"x"])
    count = 0
    try:
        while True:
            ends.session._stream._socket.send(filling)
            count += 1
    except BlockingIOError:
        pass
    ends.session._stream.write(wire.encode(wire.CHECKPOINT, 2, []), [null, null])
    received = [(await ends.receive()).type for _ in range(count + 1)]
    assert received == [wire.LOAD] * count + [wire.CHECKPOINT]
    assert len(ends.fds) == 2


async def test_a_request_that_waits_to_be_sent_ends_with_the_session(ends: Ends) -> None:
    ends.session._stream.write(wire.encode(wire.LOAD, 0, [b"a" * 3_000_000]))
    asking = asyncio.create_task(ends.session.checkpoint(0))
    await asyncio.sleep(0)
    await ends.session.close()
    with pytest.raises(SessionDied, match="closed"):
        await asking


async def test_a_request_with_fds_is_answered_like_any_other(ends: Ends, null: int) -> None:
    request = asyncio.create_task(
        ends.session._exchange(wire.CHECKPOINT, [b"x"], wire.VALUE, fds=[null])
    )
    received = await ends.receive()
    ends.reply(wire.VALUE, received.id, b"{}")
    assert (await request).parts == [b"{}"]
    assert len(ends.fds) == 1


async def test_a_cell_and_a_call_each_take_one_frame_in_each_direction(ends: Ends) -> None:
    cell = asyncio.create_task(ends.session.execute("x", timeout_seconds=9))
    request = await ends.receive()
    for call_id in (1, 2, 3):
        ends.reply(wire.CALL, call_id, b"llm", b'{"model": null, "batched": false}', b"hello")
        answer = await ends.receive()
        assert (answer.type, answer.id, answer.parts) == (wire.ANSWER, call_id, [b"", b"hello"])
    ends.reply(wire.DONE, request.id, *DONE)
    assert (await cell).calls == 3
    assert ends.decoder.pop() is None


async def test_an_answer_that_waits_to_be_read_does_not_stop_the_clock(ends: Ends) -> None:
    """Its call is over: a cell that does not read must not get unlimited time."""
    cell = asyncio.create_task(ends.session.execute("x", timeout_seconds=60))
    assert (await ends.receive()).type == wire.EXEC
    ends.session._stream.write(wire.encode(wire.LOAD, 0, [b"a" * 3_000_000]))
    assert ends.session._stream.is_full
    for call_id in (7, 8):
        arguments = wire.to_json({"model": None, "batched": False})
        ends.reply(wire.CALL, call_id, b"llm", arguments, b"hello")
    while ends.session._calls._held_bytes == 0:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0)
    assert ends.session._calls._tasks == {}
    assert ends.session._clock._deadline is not None
    frames = [await ends.receive() for _ in range(3)]
    assert [(frame.type, frame.id) for frame in frames[1:]] == [
        (wire.ANSWER, 7),
        (wire.ANSWER, 8),
    ]
    ends.reply(wire.DONE, 2, *DONE)
    assert (await cell).calls == 2


async def test_many_cells_and_calls_set_one_timer(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    set_by_us: list[Any] = []
    call_at = loop.call_at

    def counted(when: float, callback: Any, *given: Any, **named: Any) -> asyncio.TimerHandle:
        if isinstance(getattr(callback, "__self__", None), CellClock):
            set_by_us.append(callback)
        return call_at(when, callback, *given, **named)

    monkeypatch.setattr(loop, "call_at", counted)
    for _ in range(5):
        cell = asyncio.create_task(ends.session.execute("x", timeout_seconds=60))
        request = await ends.receive()
        ends.reply(wire.CALL, 1, b"budget", b"{}")
        await ends.receive()
        ends.reply(wire.DONE, request.id, *DONE)
        await cell
    assert len(set_by_us) == 1


class Clockwork:
    """An event loop's time and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Any] = []
        self.log: list[str] = []
        loop: Any = self
        self.clock = CellClock(loop, lambda: self.log.append("time is up"))

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any) -> Any:
        timer = _Timer(when, callback)
        self.timers.append(timer)
        return timer

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [t for t in self.timers if t.at <= end]:
            timer = min(due, key=lambda each: float(each.at))
            self.timers.remove(timer)
            self.now = max(self.now, timer.at)
            if not timer.is_cancelled:
                timer.callback()
        self.now = end


class _Timer:
    def __init__(self, at: float, callback: Any) -> None:
        self.at = at
        self.callback = callback
        self.is_cancelled = False

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.is_cancelled = True


def test_the_clock_fires_once() -> None:
    work = Clockwork()
    work.clock.start(10)
    work.pass_time(9.9)
    assert work.log == []
    work.pass_time(0.2)
    assert work.log == ["time is up"]
    work.clock.begin_wait("too late")
    work.pass_time(100)
    assert work.log == ["time is up"]


def test_the_clock_stops_during_calls_and_can_be_charged() -> None:
    work = Clockwork()
    work.clock.start(10)
    work.pass_time(4)
    work.clock.begin_wait(1)
    work.pass_time(50)
    work.clock.begin_wait(2)
    work.pass_time(50)
    work.clock.end_wait(1)
    work.pass_time(50)
    work.clock.end_wait(2)
    work.clock.charge(3)
    work.pass_time(2.98)
    assert work.log == []
    work.pass_time(0.03)
    assert work.log == ["time is up"]
    assert work.clock.ran_out_seconds == 10


def test_very_short_calls_do_not_stop_the_clock() -> None:
    work = Clockwork()
    work.clock.start(1)
    work.clock.begin_wait(0)
    for call in range(120):  # One is always in flight, as when frames are sent without end.
        work.pass_time(0.005)
        work.clock.begin_wait(call + 1)
        work.clock.end_wait(call)
    assert work.log == []
    work.clock.end_wait(120)  # 0.6 s have passed, and 0.24 s were taken off for 120 calls.
    for call in range(12):  # Of calls that take long, only the first moment counts.
        work.clock.begin_wait(call)
        work.pass_time(5)
        work.clock.end_wait(call)
    assert work.log == []
    work.pass_time(0.02)
    assert work.log == ["time is up"]


def test_calls_cannot_keep_the_host_busy_forever() -> None:
    work = Clockwork()
    work.clock.start(1)
    waiting: list[int] = []
    for call in range(10_000):  # Fifty are in flight all the time, and each takes 50 ms.
        work.clock.begin_wait(call)
        waiting.append(call)
        if len(waiting) > 50:
            work.clock.end_wait(waiting.pop(0))
        work.pass_time(0.001)
        if work.log:
            break
    assert work.now < 1.5


def test_a_timer_that_is_due_is_not_reset() -> None:
    """It would never ring: calls come faster than the event loop looks at its timers."""
    work = Clockwork()
    work.clock.start(1)
    first_due: list[float] = []
    for call in range(300):
        work.now += 0.005
        work.clock.begin_wait(call)
        work.clock.end_wait(call)
        due = [timer.at for timer in work.timers if not timer.is_cancelled]
        first_due = first_due or [at for at in due if at <= work.now]
        assert len(due) == 1
    assert due == first_due


def test_a_cell_whose_time_is_up_cannot_wait_any_longer() -> None:
    """The next call may be there before the timer has rung."""
    work = Clockwork()
    work.clock.start(1)
    work.clock.begin_wait(1)
    work.pass_time(30)
    work.clock.charge(1)
    work.clock.end_wait(1)
    work.clock.begin_wait(2)
    work.pass_time(0)
    assert work.log == ["time is up"]


@pytest.mark.parametrize(("seconds", "ceiling"), [(1, 3_600), (120, 7_200)])
def test_waiting_for_calls_is_limited(seconds: float, ceiling: float) -> None:
    work = Clockwork()
    work.clock.start(seconds)
    work.clock.begin_wait("for ever")
    work.pass_time(ceiling - 1)
    assert work.log == []
    work.pass_time(1)
    assert work.log == ["time is up"]
    assert work.clock.ran_out_seconds == ceiling
    work.clock.end_wait("for ever")
    work.pass_time(2)
    assert work.log == ["time is up"]
    work.clock.stop()
    work.clock.start(seconds)  # The next cell starts again from zero.
    work.pass_time(seconds - 0.5)
    assert work.log == ["time is up"]


def test_a_stopped_clock_sets_one_timer() -> None:
    work = Clockwork()
    work.clock.start(1)
    work.clock.begin_wait(1)
    work.pass_time(2_000)
    assert [timer.at for timer in work.timers if not timer.is_cancelled] == [3_600]


def test_a_cell_that_starts_during_a_call_has_its_full_time() -> None:
    work = Clockwork()
    work.clock.begin_wait(1)
    work.pass_time(1)
    work.clock.start(1)
    work.pass_time(100)
    work.clock.end_wait(1)
    work.pass_time(0.98)
    assert work.log == []
    work.pass_time(0.2)
    assert work.log == ["time is up"]


def test_requests_other_than_cells_do_not_wait_for_calls() -> None:
    work = Clockwork()
    work.clock.begin_wait(1)
    work.clock.start(1, waits_count=True)
    work.pass_time(1)
    assert work.log == ["time is up"]


def test_the_timer_of_one_cell_does_not_ring_for_the_next() -> None:
    work = Clockwork()
    work.clock.start(10)
    work.pass_time(9)
    work.clock.stop()
    work.pass_time(0.5)
    work.clock.start(10)
    work.pass_time(9.9)
    assert work.log == []
    work.clock.stop()
    work.clock.start(0.05)  # sooner than the timer that is set
    work.pass_time(0.06)
    assert work.log == ["time is up"]
    work.clock.close()
    work.pass_time(100)
    assert work.log == ["time is up"]
