"""The frame format: exact under any chunking, and unimpressed by garbage."""

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm.worker import wire

texts = st.text(st.characters(), max_size=50)  # st.characters() includes lone surrogates
frames = st.tuples(
    st.sampled_from(sorted(wire.TO_HOST)),
    st.integers(0, 2**32 - 1),
    st.lists(st.binary(max_size=200), max_size=8),
)


def decoder(limit: int = 1 << 20) -> wire.Decoder:
    return wire.Decoder(wire.TO_HOST, limit)


def drain(source: wire.Decoder) -> list[wire.Frame]:
    popped = []
    while (frame := source.pop()) is not None:
        popped.append(frame)
    return popped


@given(st.lists(frames, max_size=6), st.lists(st.integers(1, 40), min_size=1, max_size=50))
def test_frames_survive_any_chunking(
    sent: list[tuple[int, int, list[bytes]]], cuts: list[int]
) -> None:
    data = b"".join(wire.encode(*frame) for frame in sent)
    incremental = decoder()
    received: list[wire.Frame] = []
    position = turn = 0
    while position < len(data):
        step = cuts[turn % len(cuts)]
        incremental.feed(data[position : position + step])
        received += drain(incremental)
        position += step
        turn += 1
    assert [(frame.type, frame.id, frame.parts) for frame in received] == sent


@given(st.text(st.characters(exclude_categories=[])))
def test_text_is_exact_including_lone_surrogates(text: str) -> None:
    assert wire.to_text(wire.to_bytes(text)) == text


@pytest.mark.parametrize("text", ["\ud800", "\ud83d\ude00", "a\x00b", "a\r\nb", "😀", ""])
def test_awkward_text_is_exact(text: str) -> None:
    assert wire.to_text(wire.to_bytes(text)) == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_metadata_is_ascii_and_round_trips(text: str) -> None:
    part = wire.to_json({"x": text})
    assert part.isascii()
    assert wire.Frame(wire.CALL, 0, [part]).json(0) == {"x": text}


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=64), max_size=20))
def test_garbage_gives_frames_or_a_wire_error(chunks: list[bytes]) -> None:
    source = decoder(1000)
    with contextlib.suppress(wire.WireError):
        for chunk in chunks:
            source.feed(chunk)
            for frame in drain(source):
                assert frame.type in wire.TO_HOST


def malformed() -> list[tuple[str, bytes]]:
    good = wire.encode(wire.DONE, 1, [b"abc"])
    return [
        ("a 4 GB length", b"\xff" * 4),
        ("a body shorter than its head", struct.pack("<I", 8)),
        ("a frame only hosts send", wire.encode(wire.EXEC, 1, [])),
        ("an unknown type", struct.pack("<IBII", 9, 0, 0, 0)),
        ("more parts than fit", struct.pack("<IBII", 9, wire.DONE, 0, 2**32 - 1)),
        ("parts that overrun the frame", good.replace(struct.pack("<I", 3), struct.pack("<I", 4))),
        ("parts that leave a gap", good.replace(struct.pack("<I", 3), struct.pack("<I", 2))),
    ]


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in malformed()])
def test_malformed_frames_are_refused(data: bytes) -> None:
    source = decoder()
    source.feed(data)
    with pytest.raises(wire.WireError):
        drain(source)


def test_a_huge_announced_length_allocates_nothing() -> None:
    source = decoder(wire.MAX_TO_HOST_BYTES)
    tracemalloc.start()
    source.feed(struct.pack("<IBII", wire.MAX_TO_HOST_BYTES, wire.DONE, 0, 1000))
    assert source.pop() is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000


def test_an_oversized_frame_is_not_built() -> None:
    with pytest.raises(wire.WireError, match="the limit of"):
        wire.encode(wire.CALL, 1, [b"x" * 100], max_body_bytes=100)


@pytest.mark.parametrize("part", [b"\xff", b"\xc0\x80", b"{"])
def test_invalid_json_parts_are_refused(part: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.Frame(wire.CALL, 0, [part]).json(0)


def test_a_missing_part_is_refused() -> None:
    with pytest.raises(wire.WireError, match="no part 1"):
        wire.Frame(wire.CALL, 0, [b"x"]).text(1)


def test_json_nested_past_the_recursion_limit_is_refused() -> None:
    with pytest.raises(wire.WireError):
        wire.Frame(wire.CALL, 0, [b"[" * 100_000]).json(0)


def test_one_read_may_hold_several_frames_and_the_start_of_another() -> None:
    first, second = wire.encode(wire.DONE, 1, [b"a"]), wire.encode(wire.CALL, 2, [b"b", b"c"])
    source = decoder()
    source.feed(memoryview(first + second + first[:7]))
    assert [frame.parts for frame in drain(source)] == [[b"a"], [b"b", b"c"]]
    source.feed(first[7:9])
    assert source.pop() is None
    source.feed(first[9:] + second)
    assert [frame.id for frame in drain(source)] == [1, 2]


def test_a_decoded_frame_is_released() -> None:
    source = decoder(wire.MAX_TO_HOST_BYTES)
    data = wire.encode(wire.DONE, 1, [b"x" * 1_000_000])
    for pieces in ([data], [data[:500_000], data[500_000:]]):
        tracemalloc.start()
        for piece in pieces:
            source.feed(piece)
        assert len(drain(source)) == 1
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert held < 50_000


def test_the_buffer_may_be_reused_after_feeding() -> None:
    data = bytearray(wire.encode(wire.DONE, 1, [b"abc"]))
    source = decoder()
    source.feed(memoryview(data))
    data[:] = bytes(len(data))
    assert [frame.parts for frame in drain(source)] == [[b"abc"]]


@given(st.lists(texts, max_size=20), st.integers(0, 3))
def test_many_texts_are_decoded_at_once(sent: list[str], start: int) -> None:
    frame = wire.Frame(wire.CALL, 0, [wire.to_bytes(text) for text in sent])
    assert frame.texts(start) == sent[start:]


def test_one_text_that_is_not_utf_8_refuses_the_whole_frame() -> None:
    with pytest.raises(wire.WireError, match="not UTF-8"):
        wire.Frame(wire.CALL, 0, [b"ok", b"\xff"]).texts(0)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000])
def test_frames_may_have_any_number_of_parts(count: int) -> None:
    parts = [b"%d" % index for index in range(count)]
    source = decoder()
    source.feed(wire.encode(wire.CALL, 7, parts))
    assert [frame.parts for frame in drain(source)] == [parts]


def test_more_parts_than_allowed_are_not_built() -> None:
    with pytest.raises(wire.WireError, match="the limit of"):
        wire.encode(wire.CALL, 1, [b""] * (wire.MAX_PARTS + 1))


def test_protocol_numbers_are_fixed() -> None:
    assert (wire.LOAD_SHARED, wire.CHECKPOINT, wire.RESUME) == (8, 9, 10)
    assert not wire.TO_HOST & wire.TO_WORKER
