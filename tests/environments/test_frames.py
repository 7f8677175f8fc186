"""What the host believes of a worker's frames: what Python's JSON and our shapes allow, no more."""

import contextlib
import json
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.environments import _calls, _frames
from rlm.errors import ProtocolViolation
from rlm.worker import images, wire
from tests.picture_samples import gif, png

COUNTS = wire.DONE_COUNTS
texts = st.text(st.characters(exclude_categories=[]), max_size=20)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def done(*parts: bytes, counts: tuple[int, int, int, int, bool] = (0, 0, 0, 0, False)) -> Any:
    frame = wire.Frame(wire.DONE, 1, [COUNTS.pack(*counts), *parts])
    return _frames.read_done(frame, calls=3, seconds=0.5)


def call(*parts: bytes) -> _calls.Call:
    return _calls.read_call(wire.Frame(wire.CALL, 1, list(parts)))


@given(st.dictionaries(texts, values, max_size=3))
def test_tool_arguments_arrive_as_pythons_json_reads_them(arguments: dict[str, Any]) -> None:
    sent = {"name": "t", "arguments": arguments}
    part = wire.to_json(sent)
    assert repr(call(b"tool", part).arguments) == repr(json.loads(part))


@given(texts | st.none(), st.booleans(), st.lists(texts, min_size=1, max_size=3))
def test_prompts_and_models_arrive_exactly(
    model: str | None, batched: bool, prompts: list[str]
) -> None:
    arguments = {"model": model, "batched": batched}
    parts = [b"llm", wire.to_json(arguments), *map(wire.to_bytes, prompts)]
    if len(prompts) > 1 and not batched:
        with pytest.raises(ProtocolViolation):
            call(*parts)
        return
    assert call(*parts) == _calls.Call("llm", arguments, prompts, len(prompts))


@given(
    st.dictionaries(st.sampled_from(["model", "batched", "contexts", "x"]), values, max_size=4)
    | values
)
def test_the_fast_reader_accepts_nothing_that_the_strict_one_refuses(value: Any) -> None:
    part = wire.to_json(value)
    for kind, shape in ((b"llm", _calls._LlmArguments), (b"rlm", _calls._RlmArguments)):
        with contextlib.suppress(ProtocolViolation):
            call(kind, part, b"prompt")
            msgspec.convert(json.loads(part), shape)


@given(st.lists(st.binary(max_size=40), max_size=9))
def test_garbage_is_a_violation_or_a_call(parts: list[bytes]) -> None:
    for kind in (b"llm", b"rlm", b"tool", b"data", b"cite", b"budget"):
        with contextlib.suppress(ProtocolViolation):
            assert call(kind, *parts).kind == kind.decode()
    with contextlib.suppress(ProtocolViolation):
        _calls.read_call(wire.Frame(wire.CALL, 1, parts))
    with contextlib.suppress(ProtocolViolation):
        _frames.read_done(wire.Frame(wire.DONE, 1, parts), calls=0, seconds=0.0)
    with contextlib.suppress(ProtocolViolation):
        _frames.read_value(wire.Frame(wire.VALUE, 1, parts))


# -- pictures -------------------------------------------------------------------------------------

PNG, GIF = png(), gif()
rows_of_images = st.lists(
    st.lists(st.sampled_from([PNG, GIF, PNG + b"\xff"]) | texts, max_size=4), min_size=1, max_size=4
)


def looking(rows: Any, *parts: bytes, batched: bool = True) -> _calls.Call:
    arguments = {"model": None, "batched": batched, "images": rows}
    return call(b"llm", wire.to_json(arguments), *parts)


@given(rows_of_images, st.data())
def test_pictures_arrive_with_their_prompts(given_rows: list[list[Any]], data: Any) -> None:
    prompts = data.draw(st.lists(texts, min_size=len(given_rows), max_size=len(given_rows)))
    rows, parts = images.attached(given_rows)
    read = looking(rows, *map(wire.to_bytes, prompts), *parts)
    assert read.parts == prompts
    assert read.arguments == {"model": None, "batched": True, "images": given_rows}
    assert read.prompts == len(prompts)


@given(
    st.lists(st.lists(st.integers(-2, 4) | st.integers() | texts, max_size=3), max_size=3),
    st.lists(st.sampled_from([PNG, GIF, b"text", b"\xff"]), max_size=6),
)
def test_references_to_pictures_are_valid_or_a_violation(
    rows: list[Any], parts: list[bytes]
) -> None:
    with contextlib.suppress(ProtocolViolation):
        read = looking(rows, *parts)
        sent = parts[len(rows) :]
        meant = [[each if isinstance(each, str) else sent[each] for each in row] for row in rows]
        assert (read.arguments["images"], len(read.parts)) == (meant, len(rows))
        assert set(sent) <= {PNG, GIF}


WRONG_PICTURES: dict[str, tuple[Any, list[bytes]]] = {
    "one too few": ([[0, 1]], [b"a", PNG]),
    "one too many": ([[0]], [b"a", PNG, GIF]),
    "none but counted": ([[0]], [b"a"]),
    "sent but not counted": ([["a.png"]], [b"a", PNG]),
    "no prompt": ([], [PNG]),
    "fewer prompts than lists": ([[0], []], [b"a", PNG]),
    "a number left out": ([[0, 2]], [b"a", PNG, GIF]),
    "a number below zero": ([[-1]], [b"a", PNG]),
    "a number beyond all": ([[10**30]], [b"a", PNG]),
    "a flag for a number": ([[False]], [b"a", PNG]),
    "a fraction": ([[0.0]], [b"a", PNG]),
    "nothing for a picture": ([[None]], [b"a", PNG]),
    "a list too deep": ([[[0]]], [b"a", PNG]),
    "no list": (0, [b"a", PNG]),
    "names for a list": (["ab"], [b"a"]),
    "what is no picture": ([[0]], [b"a", b"%PDF-1.7"]),
    "an empty picture": ([[0]], [b"a", b""]),
    "a large picture": ([[0]], [b"a", PNG + bytes(images.MAX_IMAGE_BYTES)]),
    "many pictures": ([["a.png"] * (images.MAX_IMAGES + 1)], [b"a"]),
    "too much in all": (
        [list(range(7))],
        [b"a", *(PNG + bytes([n]) + bytes(7 << 20) for n in range(7))],
    ),
    "a prompt that is no text": ([[0]], [b"\xff", PNG]),
}


@pytest.mark.parametrize(("rows", "parts"), WRONG_PICTURES.values(), ids=WRONG_PICTURES)
def test_invalid_references_to_pictures_are_violations(rows: Any, parts: list[bytes]) -> None:
    with pytest.raises(ProtocolViolation):
        looking(rows, *parts)


def test_several_prompts_with_pictures_are_a_batch() -> None:
    assert looking([[0]], b"a", PNG, batched=False).prompts == 1
    with pytest.raises(ProtocolViolation):
        looking([[0], [0]], b"a", b"b", PNG, batched=False)


def test_pictures_with_other_kinds_of_calls_are_violations() -> None:
    rlm = {"model": None, "batched": False, "contexts": [None], "images": [[0]]}
    with pytest.raises(ProtocolViolation):
        call(b"rlm", wire.to_json(rlm), b"a", PNG)
    with pytest.raises(ProtocolViolation):
        call(b"tool", wire.to_json({"name": "t", "arguments": {}}), PNG)
    with pytest.raises(ProtocolViolation):
        call(b"budget", b"{}", PNG)


@pytest.mark.parametrize("tools", [None, [], ["a", "b"]])
def test_calls_of_child_runs_carry_their_granted_tools(tools: list[str] | None) -> None:
    rlm = {"model": None, "batched": False, "contexts": [None]}
    sent = rlm if tools is None else {**rlm, "tools": tools}
    assert call(b"rlm", wire.to_json(sent), b"p").arguments == sent


@pytest.mark.parametrize("tools", ["a", [1], [None], {"a": "b"}, 3, True])
def test_invalid_tool_names_for_child_runs_are_violations(tools: Any) -> None:
    rlm = {"model": None, "batched": False, "contexts": [None], "tools": tools}
    with pytest.raises(ProtocolViolation):
        call(b"rlm", wire.to_json(rlm), b"p")


# -- results of cells -----------------------------------------------------------------------------


def test_the_result_of_a_cell_without_variables_or_errors() -> None:
    plain = done(b"", b"out", b"err", b"", counts=(3, 30, 0, 0, False))
    assert plain.deleted_variables == []
    assert (plain.result.stdout, plain.result.stderr) == ("out", "err")
    assert (plain.result.stdout_chars, plain.result.stderr_chars) == (3, 30)
    assert (plain.result.calls, plain.result.seconds) == (3, 0.5)
    assert plain.result.new_variables == plain.result.changed_variables == {}


def test_variables_are_separated_by_their_counts() -> None:
    words = wire.to_bytes("\0".join(["a", "int", "b", "\ud800", "c", "str[1]", "gone", "lost"]))
    read = done(b"", b"", b"", words, counts=(0, 0, 2, 1, True))
    assert read.result.new_variables == {"a": "int", "b": "\ud800"}
    assert read.result.changed_variables == {"c": "str[1]"}
    assert read.deleted_variables == ["gone", "lost"]
    assert read.result.interrupted


META = b'{"error": null, "how": "FINAL", "texts": ["submission"]}'
WRONG_ENDS: dict[str, list[bytes]] = {
    "no parts": [],
    "counts only": [COUNTS.pack(0, 0, 0, 0, False)],
    "short counts": [b"\0" * (COUNTS.size - 1), b"", b"", b"", b""],
    "long counts": [b"\0" * (COUNTS.size + 1), b"", b"", b"", b""],
    "more variables than words": [COUNTS.pack(0, 0, 1, 0, False), b"", b"", b"", b"a"],
    "a variable without its words": [COUNTS.pack(0, 0, 0, 2**32 - 1, False), b"", b"", b"", b""],
    "metadata of no known kind": [COUNTS.pack(0, 0, 0, 0, False), b'{"x": 1}', b"", b"", b""],
    "metadata that lacks a field": [COUNTS.pack(0, 0, 0, 0, False), b"{}", b"", b"", b""],
    "a text that is not there": [COUNTS.pack(0, 0, 0, 0, False), META, b"", b"", b""],
    "a text nobody named": [COUNTS.pack(0, 0, 0, 0, False), b"", b"", b"", b"", b"text"],
    "the same text twice": [
        COUNTS.pack(0, 0, 0, 0, False),
        META.replace(b'"submission"]', b'"submission", "submission"]'),
        b"", b"", b"", b"a", b"b",
    ],
    "output that is not text": [COUNTS.pack(0, 0, 0, 0, False), b"", b"\xff", b"", b""],
}  # fmt: skip


@pytest.mark.parametrize("parts", WRONG_ENDS.values(), ids=WRONG_ENDS)
def test_a_malformed_cell_result_is_a_violation(parts: list[bytes]) -> None:
    with pytest.raises(ProtocolViolation):
        _frames.read_done(wire.Frame(wire.DONE, 1, parts), calls=0, seconds=0.0)


def test_the_layout_of_the_counts_matches_the_wire() -> None:
    assert struct.calcsize("<QQII?") == COUNTS.size
    read = done(META, b"", b"", b"", b"answer \xed\xa0\x80")
    assert read.result.submission.text == "answer \ud800"


def test_a_long_frame_is_split_when_its_parts_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    splits: list[int] = []
    split = wire._split

    def counting(body: bytearray, offset: int, lengths: tuple[int, ...]) -> list[bytes]:
        splits.append(len(body))
        return split(body, offset, lengths)

    monkeypatch.setattr(wire, "_split", counting)
    parts = [b"llm", b"{}", b"x" * 1_000_000, b"", b"y"]
    short = wire.encode(wire.CALL, 2, [b"budget", b"{}"])
    data = wire.encode(wire.CALL, 1, parts) + short
    decoder = wire.Decoder(wire.TO_HOST, wire.MAX_TO_HOST_BYTES)
    frames = []
    for start in range(0, len(data), 1 << 16):
        decoder.feed(data[start : start + (1 << 16)])
        while (frame := decoder.pop()) is not None:
            frames.append(frame)
    assert [(frame.type, frame.id) for frame in frames] == [(wire.CALL, 1), (wire.CALL, 2)]
    assert [frame.size_bytes for frame in frames] == [len(data) - len(short) - 4, len(short) - 4]
    assert splits == []
    assert (frames[0].parts, frames[0].part(4)) == (parts, b"y")
    assert frames[1].parts == [b"budget", b"{}"]
    assert len(splits) == 1
