"""One pipe for two channels: pieces arrive whole, room is kept, and nonsense is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.worker import multiplex, relay

LIMITED = (multiplex.STREAM, multiplex.MONITOR)
pieces = st.lists(
    st.tuples(st.sampled_from(LIMITED), st.binary(min_size=1, max_size=300)),
    min_size=1,
    max_size=20,
)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """The same bytes in pieces of these sizes, and the rest."""
    parts, at = [], 0
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    return [*parts, data[at:]]


@given(pieces, st.lists(st.integers(1, 50), max_size=30))
def test_pieces_arrive_as_they_were_sent_however_they_were_cut(
    sent: list[tuple[int, bytes]], sizes: list[int]
) -> None:
    sender, receiver = multiplex.Multiplexer(), multiplex.Multiplexer()
    data = b"".join(sender.packed(number, piece) for number, piece in sent)
    received = [each for part in cut(data, sizes) for each in receiver.feed(part)]
    assert received == sent


def test_nothing_may_follow_the_end_of_a_channel() -> None:
    """Pieces without bytes take no room, so any number of them could be sent otherwise."""
    sender, receiver = multiplex.Multiplexer(), multiplex.Multiplexer()
    assert receiver.feed(sender.packed(multiplex.STREAM, b"")) == [(multiplex.STREAM, b"")]
    for piece in (b"", b"x"):
        with pytest.raises(multiplex.MultiplexError, match="after the end"):
            receiver.feed(sender.packed(multiplex.STREAM, piece))


def test_an_oversized_complete_line_is_refused() -> None:
    line = multiplex.to_line(bytes(4 * multiplex.MAX_PIECE_BYTES), relay.TO_HOST).encode()
    with pytest.raises(multiplex.MultiplexError, match="too long"):
        multiplex.LineReader(relay.TO_HOST).feed(line)


@given(st.binary(max_size=200))
def test_any_bytes_decode_to_pieces_or_an_error(data: bytes) -> None:
    receiver = multiplex.Multiplexer()
    try:
        for number, piece in receiver.feed(data):
            assert number in {
                multiplex.CONTROL,
                multiplex.STREAM,
                multiplex.MONITOR,
                multiplex.OPEN,
            }
            assert len(piece) <= multiplex.MAX_PIECE_BYTES
    except multiplex.MultiplexError:
        return


def test_a_channel_has_limited_room_until_bytes_are_consumed() -> None:
    sender, receiver = multiplex.Multiplexer(), multiplex.Multiplexer()
    sent = 0
    while room := sender.room(multiplex.STREAM):
        receiver.feed(sender.packed(multiplex.STREAM, bytes(room)))
        sent += room
    assert sent == multiplex.WINDOW_BYTES
    assert sender.room(multiplex.MONITOR) > 0  # The other channel is not held up.
    told = receiver.took(multiplex.STREAM, sent)
    assert sender.feed(told) == []
    assert sender.room(multiplex.STREAM) == multiplex.MAX_PIECE_BYTES


def test_small_amounts_consumed_are_not_reported_yet() -> None:
    assert multiplex.Multiplexer().took(multiplex.STREAM, 10) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"\x09" + bytes(4),
        b"\x01" + (multiplex.MAX_PIECE_BYTES + 1).to_bytes(4, "little"),
        b"\x04" + (3).to_bytes(4, "little") + b"abc",
        b"\x04" + (5).to_bytes(4, "little") + b"\x01" + (1).to_bytes(4, "little"),
        b"\x04" + (5).to_bytes(4, "little") + b"\x07" + bytes(4),
    ],
    ids=["unknown channel", "too long", "half a room", "room that was not taken", "room of nobody"],
)
def test_invalid_pieces_are_refused(data: bytes) -> None:
    with pytest.raises(multiplex.MultiplexError):
        multiplex.Multiplexer().feed(data)


def test_more_than_the_window_is_refused() -> None:
    receiver, piece = multiplex.Multiplexer(), bytes(multiplex.MAX_PIECE_BYTES)
    for _ in range(multiplex.WINDOW_BYTES // len(piece)):
        receiver.feed(multiplex.Multiplexer().packed(multiplex.STREAM, piece))
    with pytest.raises(multiplex.MultiplexError, match="room"):
        receiver.feed(multiplex.Multiplexer().packed(multiplex.STREAM, b"x"))


# -- lines ----------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=100), max_size=10), st.lists(st.integers(1, 30), max_size=20))
def test_lines_carry_bytes_among_other_output(sent: list[bytes], sizes: list[int]) -> None:
    reader = multiplex.LineReader(relay.TO_HOST)
    noise = "a banner\r\n" + multiplex.to_line(b"an echo", relay.FROM_HOST)
    text = "".join(noise + multiplex.to_line(each, relay.TO_HOST) for each in sent)
    received = b"".join(reader.feed(part) for part in cut(text.encode(), sizes))
    assert received == b"".join(sent)


@given(st.binary(max_size=300))
def test_any_text_decodes_to_bytes_or_an_error(text: bytes) -> None:
    try:
        multiplex.LineReader(relay.TO_HOST).feed(text)
    except multiplex.MultiplexError:
        return


def test_an_endless_line_is_not_kept() -> None:
    reader = multiplex.LineReader(relay.TO_HOST)
    for _ in range(10):
        assert reader.feed(b"x" * multiplex.MAX_PIECE_BYTES) == b""
    assert reader.feed(b"\n" + multiplex.to_line(b"ours", relay.TO_HOST).encode()) == b"ours"
    with pytest.raises(multiplex.MultiplexError, match="too long"):
        multiplex.LineReader(relay.TO_HOST).feed(b">" + b"A" * 3 * multiplex.MAX_PIECE_BYTES)
