"""Bounded output: all counted, head and tail kept."""

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.worker.capture import BoundedStream, cut
from rlm.worker.turns import Turns


@given(st.lists(st.text(max_size=30), max_size=40), st.integers(2, 60))
def test_head_and_tail_are_kept_however_the_text_was_written(pieces: list[str], kept: int) -> None:
    stream = BoundedStream(kept)
    for piece in pieces:
        assert stream.write(piece) == len(piece)
    whole = "".join(pieces)
    text, written = stream.take()
    assert written == len(whole)
    assert text == cut(whole, kept)
    if len(whole) <= kept:
        assert text == whole
    else:
        assert text.startswith(whole[: kept - kept // 2])
        assert text.endswith(whole[len(whole) - kept // 2 :])
        assert f"[... {len(whole) - kept:,} characters cut ...]" in text


def test_taking_the_output_clears_it() -> None:
    stream = BoundedStream(10)
    stream.write("a" * 100)
    stream.take()
    assert stream.take() == ("", 0)


def test_what_is_written_after_the_last_cell_of_a_turn_is_no_output_of_the_next() -> None:
    turns = Turns()
    stream = BoundedStream(100, turns)
    stream.write("early")
    assert (stream.take(), stream.take_left_over()) == (("early", 5), "")
    stream.write("late")
    turns.begin()
    assert (stream.take(), stream.take_left_over()) == (("", 0), "late")
    stream.write("new")
    assert (stream.take(), stream.take_left_over()) == (("new", 3), "")


def test_of_what_earlier_turns_left_running_writes_both_ends_are_kept() -> None:
    turns = Turns()
    stream = BoundedStream(1_000_000, turns)
    stream.write("first" + "-" * 500_000)
    for _ in range(3):
        turns.begin()
        stream.write("-" * 500_000 + "last")
    turns.begin()
    assert stream.take() == ("", 0)
    text = stream.take_left_over()
    assert text.startswith("first-")
    assert text.endswith("-last")
    assert len(text) < 2_100


def test_many_tiny_writes_stay_bounded() -> None:
    stream = BoundedStream(100)
    for _ in range(200_000):
        stream.write("x")
    text, written = stream.take()
    assert written == 200_000
    assert len(text) < 200


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 7))
def test_a_write_may_end_inside_a_character(text: str, step: int) -> None:
    stream = BoundedStream(10_000)
    data = text.encode()
    for start in range(0, len(data), step):
        stream.buffer.write(data[start : start + step])
    assert stream.take()[0] == text


def test_writes_from_threads_are_all_counted() -> None:
    stream = BoundedStream(1_000)
    threads = [
        threading.Thread(target=lambda: [stream.write("ab") for _ in range(1_000)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stream.take()[1] == 16_000


def test_only_text_can_be_written() -> None:
    data: Any = b"x"
    with pytest.raises(TypeError):
        BoundedStream(10).write(data)
