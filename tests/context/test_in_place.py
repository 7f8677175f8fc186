"""Large texts in ASCII are hashed and shared in place, with no visible difference."""

import gc
import hashlib

import pytest

from rlm.context import store_context
from rlm.context.stored import ascii_in_place

LARGE = "a line of some length, again and again\n" * 30_000


def test_an_ascii_text_is_viewed_without_a_copy() -> None:
    view = ascii_in_place(LARGE)
    assert view is not None
    assert view.readonly
    assert view == LARGE.encode()


@pytest.mark.parametrize("text", ["short", "", LARGE + "é", LARGE + "\ud800"])
def test_other_texts_cannot_be_viewed_without_a_copy(text: str) -> None:
    assert ascii_in_place(text) is None


def test_the_text_lives_as_long_as_the_view_of_its_bytes() -> None:
    view = ascii_in_place("".join(["kept ", LARGE]))
    gc.collect()
    others = ["x" * len(LARGE) for _ in range(3)]
    assert view is not None
    assert bytes(view[:10]) == b"kept a lin"
    assert len(others) == 3


def test_a_text_viewed_in_place_has_the_same_size_and_hash() -> None:
    stored = store_context(LARGE)
    assert stored.size_bytes == len(LARGE)
    assert stored.sha256 == hashlib.sha256(LARGE.encode()).hexdigest()
    assert b"".join(stored.chunks(1 << 16)) == LARGE.encode()
