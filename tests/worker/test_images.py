"""Pictures in a cell: what is taken, how it is laid out, and what is refused before it is sent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.worker import images
from tests.picture_samples import gif, jpeg, png, webp

PNG, GIF = png(), gif()


class Saved:
    """Like a picture of PIL."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.saved = 0

    def save(self, file: Any, **options: str) -> None:
        assert options == {"format": "PNG"}
        self.saved += 1
        file.write(self.data)


class Figure:
    """Like a figure of matplotlib."""

    def savefig(self, file: Any, **options: str) -> None:
        assert options == {"format": "PNG"}
        file.write(PNG)


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (jpeg(), "image/jpeg"),
        (GIF, "image/gif"),
        (GIF.replace(b"89a", b"87a"), "image/gif"),
        (webp(b"VP8 "), "image/webp"),
        (b"RIFF\0\0\0\0WAVE", None),
        (b"BM\0\0\0\0", None),
        (b"<svg/>", None),
        (b"", None),
    ],
)
def test_the_first_bytes_determine_the_media_type(data: bytes, media_type: str | None) -> None:
    assert images.media_type_of(data) == media_type


def test_a_picture_used_several_times_is_sent_once() -> None:
    saved = Saved(GIF)
    rows, parts = images.attached([[PNG, "a.png"], None, bytearray(PNG), [saved, GIF], saved])
    assert rows == [[0, "a.png"], [], [0], [1, 1], [1]]
    assert parts == [PNG, GIF]
    assert saved.saved == 1


def test_anything_that_can_be_saved_as_png_is_accepted() -> None:
    rows, parts = images.attached([[Saved(PNG), Figure(), memoryview(PNG), PNG]])
    assert (rows, parts) == ([[0, 0, 0, 0]], [PNG])


@pytest.mark.parametrize("image", [3, None, 1.5, {"a": 1}, object(), [[1]]])
def test_a_value_that_is_not_a_picture_is_a_clear_type_error(image: Any) -> None:
    with pytest.raises(TypeError, match=f"PNG, JPEG, GIF or WebP.*not {type(image).__name__}"):
        images.attached([[image]])


def test_limits_are_checked_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="21 images exceed the limit of 20 per prompt"):
        images.attached([["a.png"] * 21])
    with pytest.raises(ValueError, match="these 3 bytes are not a PNG"):
        images.attached([b"abc"])
    with pytest.raises(ValueError, match="at most 8 MiB, not"):
        images.attached([PNG + bytes(8 << 20)])
    monkeypatch.setattr(images, "MAX_CALL_BYTES", 3 * len(PNG))
    assert len(images.attached([[PNG, PNG + b"1"], [PNG]])[1]) == 2
    with pytest.raises(ValueError, match="in several calls"):
        images.attached([[PNG, PNG + b"1", PNG + b"2"]])


@given(st.lists(st.none() | st.lists(st.sampled_from([PNG, GIF, "a.png", "\ud800"]), max_size=5)))
def test_rows_refer_to_the_given_pictures(given_images: list[Any]) -> None:
    rows, parts = images.attached(given_images)
    meant = [[each if isinstance(each, str) else parts[each] for each in row] for row in rows]
    assert meant == [each or [] for each in given_images]
    assert len(set(parts)) == len(parts)
