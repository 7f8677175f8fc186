"""File descriptors that ride along with frames, whoever reads them."""

from __future__ import annotations

import array
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from rlm.worker import wire
from rlm.worker.channel import Channel
from rlm.worker.interrupts import Interrupts


class Pair:
    """A channel and the host's end of its socket; what it is sent are pipes that hold a letter."""

    def __init__(self) -> None:
        self.host, worker = socket.socketpair()
        self.interrupts = Interrupts()
        self.interrupts.open_pipes()
        self.channel = Channel(self.interrupts)
        self.channel.adopt(worker)
        self.worker = worker

    def send(self, data: bytes, letters: str) -> None:
        fds = array.array("i", [_pipe_with(letter) for letter in letters])
        self.host.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        for fd in fds:
            os.close(fd)

    def close(self) -> None:
        for end in (self.host, self.worker):
            end.close()
        self.interrupts.close_pipes()


def _pipe_with(letter: str) -> int:
    reader, writer = os.pipe()
    os.write(writer, letter.encode())
    os.close(writer)
    return reader


def _letter_of(fd: int) -> str:
    assert not os.get_inheritable(fd)
    letter = os.read(fd, 10).decode()
    os.close(fd)
    return letter


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def test_descriptors_are_taken_in_order_of_arrival(pair: Pair) -> None:
    pair.host.sendall(wire.encode(wire.EXEC, 1, [b"plain"]))
    pair.send(wire.encode(wire.LOAD_SHARED, 2, [b"context"]), "ab")
    pair.send(wire.encode(wire.CHECKPOINT, 3, []), "c")
    assert [pair.channel.next_request().id for _ in range(3)] == [1, 2, 3]
    assert [_letter_of(pair.channel.take_fd()) for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(LookupError):
        pair.channel.take_fd()


def test_a_descriptor_arrives_with_the_first_byte_of_its_frame(pair: Pair) -> None:
    data = wire.encode(wire.LOAD_SHARED, 1, [b"x" * 100_000])
    pair.send(data[:1], "a")
    for start in range(1, len(data), 30_000):
        pair.host.sendall(data[start : start + 30_000])
    assert pair.channel.next_request().parts == [b"x" * 100_000]
    assert _letter_of(pair.channel.take_fd()) == "a"


@pytest.mark.parametrize("on_main", [True, False])
def test_an_fd_is_kept_while_a_thread_waits_for_an_answer(pair: Pair, on_main: bool) -> None:
    pair.send(wire.encode(wire.ANSWER, 1, [b"", b"reply"]), "a")
    answers: list[wire.Frame] = []
    if on_main:
        answers.append(pair.channel.ask([b"question"]))
    else:
        thread = threading.Thread(target=lambda: answers.append(pair.channel.ask([b"question"])))
        thread.start()
        thread.join()
    assert answers[0].texts(1) == ["reply"]
    assert _letter_of(pair.channel.take_fd()) == "a"


def test_more_descriptors_than_fit_end_the_worker(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(os, "_exit", leave)
    pair.send(wire.encode(wire.CHECKPOINT, 1, []), "abcdefghijklmnop")
    with pytest.raises(SystemExit, match="70"):
        pair.channel.next_request()


def test_a_question_and_its_answer_take_one_frame_each(pair: Pair) -> None:
    pair.host.sendall(wire.encode(wire.ANSWER, 1, [b""]))
    pair.channel.ask([b"llm", b"{}", b"prompt"])
    sent = wire.Decoder(wire.TO_HOST, wire.MAX_TO_HOST_BYTES)
    sent.feed(pair.host.recv(1 << 16))
    frame = sent.pop()
    assert frame is not None
    assert (frame.type, frame.parts) == (wire.CALL, [b"llm", b"{}", b"prompt"])
    assert sent.pop() is None
