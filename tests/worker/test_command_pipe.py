"""The command pipe: commands bring and fetch bytes, and every command may be repeated."""

import base64
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm.worker import command_pipe


class Place:
    """A command pipe served by a thread, as the relay would serve it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "socket")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(8)
        self.pipe = command_pipe.CommandPipe(listener, 100)
        self.brought = b""
        self.over = threading.Event()
        self.listener = listener
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        import select

        while not self.over.is_set():
            poll = select.poll()
            for fd, events in self.pipe.watched():
                poll.register(fd, events)
            for fd, events in poll.poll(min(20, self.pipe.milliseconds_left)):
                self.brought += self.pipe.received(fd, events)
            self.pipe.tick()

    def say(self, *words: str) -> bytes:
        """Run the command as a sandbox would."""
        done = subprocess.run(
            [sys.executable, "-S", "-s", "-c", command_pipe.COMMAND, self.path, *words],
            check=True,
            capture_output=True,
        )
        assert done.stdout.startswith(b">")
        return base64.b64decode(done.stdout[1:])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.over.set()
    made.thread.join()
    made.listener.close()


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_repeated_put_is_taken_once(place: Place) -> None:
    assert place.say("put", "100", text(b"abc")) == b"103"
    assert place.say("put", "100", text(b"abc")) == b"103"  # The answer had been lost.
    assert place.say("put", "103", text(b"de")) == b"105"
    assert place.brought == b"abcde"


def test_lost_output_can_be_fetched_again(place: Place) -> None:
    place.pipe.send(b"hello")
    assert place.say("get", "0", "0") == b"hello"
    assert place.say("get", "0", "0") == b"hello"
    assert place.say("get", "5", "0") == b""
    place.pipe.send(b"!")
    assert place.say("get", "5", "0") == b"!"


def test_a_get_waits_until_there_is_output(place: Place) -> None:
    fetched: list[bytes] = []
    asking = threading.Thread(target=lambda: fetched.append(place.say("get", "0", "60000")))
    asking.start()
    while place.pipe._asking is None:
        threading.Event().wait(0.01)
    place.pipe.send(b"news")
    asking.join()
    assert fetched == [b"news"]


def test_large_output_is_fetched_in_parts(place: Place) -> None:
    data = bytes(range(256)) * 2_000
    place.pipe.send(data)
    received = b""
    while len(received) < len(data):
        piece = place.say("get", str(len(received)), "0")
        assert 0 < len(piece) <= command_pipe.MAX_GET_BYTES
        received += piece
    assert received == data


@pytest.mark.parametrize(
    "line", [b"", b"get\n", b"put x\n", b"get 1 -1\n", b"steal 1\n", b"\xff\n"]
)
def test_connections_that_send_nonsense_are_closed(place: Place, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place.path)
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""
    assert place.say("put", "100", text(b"a")) == b"101"


def test_a_put_fits_into_one_argument_of_a_command_line() -> None:
    assert len(text(bytes(command_pipe.MAX_PUT_BYTES))) < 128 << 10
