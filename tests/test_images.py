"""Pictures in messages: size from the header, a bound on what they cost, what is shown of them."""

import base64
import hashlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm import images
from rlm.images import bound_of_parts, content_of, display_text, image_tokens, picture_of, size_of
from rlm.messages import MESSAGE_OVERHEAD_TOKENS, Message, bound_tokens
from tests.picture_samples import gif, jpeg, png, segment, webp

edges = st.integers(1, 20_000)
SAMPLES = {
    "png": png(640, 480),
    "gif": gif(640, 480),
    "jpeg": jpeg(640, 480),
    "jpeg with fill bytes and a marker alone": jpeg(640, 480, before=b"\xff\xff\xff\x01"),
    "jpeg of a camera": jpeg(640, 480, before=segment(65_000) * 5),
    "webp, lossy": webp(b"VP8 ", 640, 480),
    "webp, lossless": webp(b"VP8L", 640, 480),
    "webp, extended": webp(b"VP8X", 640, 480),
}


# -- size in pixels -------------------------------------------------------------------------------


@pytest.mark.parametrize("data", SAMPLES.values(), ids=SAMPLES)
def test_the_size_is_read_from_the_header(data: bytes) -> None:
    assert size_of(data) == (640, 480)


@pytest.mark.parametrize("data", SAMPLES.values(), ids=SAMPLES)
def test_a_truncated_header_has_no_size(data: bytes) -> None:
    assert size_of(data[:9]) is None
    assert all(size_of(data[:end]) in {None, (640, 480)} for end in range(40))


@given(st.sampled_from(list(SAMPLES.values())), st.binary(max_size=60), st.integers(0, 60))
def test_any_bytes_can_be_examined_for_a_size(data: bytes, odd: bytes, at: int) -> None:
    for each in (odd, data[:at] + odd, data[:at] + odd + data[at:], data[:3] + odd):
        size = size_of(each)
        assert size is None or min(size) > 0


def test_a_picture_without_pixels_has_no_size() -> None:
    assert size_of(png(0, 5)) is size_of(gif(3, 0)) is size_of(jpeg(0, 0)) is None


def test_a_million_segments_are_not_followed() -> None:
    assert size_of(jpeg(4, 3, before=segment(2) * 1_000_000)) is None
    assert size_of(jpeg(4, 3, before=segment(2) * 900)) == (4, 3)


def test_a_picture_in_an_accepted_format_is_recognised() -> None:
    data = png(7, 5)
    picture = picture_of(data)
    assert picture is not None
    assert picture.read() == data
    assert picture.sha256 == hashlib.sha256(data).hexdigest()
    facts = {"media_type": "image/png", "width": 7, "height": 5, "size_bytes": len(data)}
    assert picture.facts() == facts
    too_large = png(7, 5, filling=bytes(images.MAX_IMAGE_BYTES))
    for other in (b"", b"BM" + bytes(60), b"%PDF-1.7", b"II*\0", data[:12], too_large):
        assert picture_of(other) is None


# -- what providers bill, by their own words ------------------------------------------------------


def openai_tiles(width: int, height: int, base: int, tile: int) -> int:
    longest = max(width, height)
    w, h = (width * 2048 / longest, height * 2048 / longest) if longest > 2048 else (width, height)
    shortest = min(w, h)
    w, h = (w * 768 / shortest, h * 768 / shortest) if shortest > 768 else (w, h)
    return base + tile * math.ceil(round(w, 6) / 512) * math.ceil(round(h, 6) / 512)


def patches(width: int, height: int, edge: int) -> int:
    return math.ceil(width / edge) * math.ceil(height / edge)


def gemini_crops(width: int, height: int) -> int:
    if max(width, height) <= 384:
        return 258
    edge = max(1, math.floor(min(width, height) / 1.5))
    return 258 * math.ceil(width / edge) * math.ceil(height / edge)


BILLED: dict[str, Any] = {
    "gpt-4o": lambda w, h: openai_tiles(w, h, 85, 170),
    "gpt-4o-mini": lambda w, h: openai_tiles(w, h, 2833, 5667),
    "gpt-5": lambda w, h: openai_tiles(w, h, 70, 140),
    "gpt-4.1-nano": lambda w, h: math.ceil(min(1536, patches(w, h, 32)) * 2.46),
    "patches that are never scaled down": lambda w, h: math.ceil(patches(w, h, 32) * 1.2),
    "claude, by area": lambda w, h: math.ceil(min(w * h, 1568 * 1568) / 750),
    "claude, in high resolution": lambda w, h: min(4784, patches(w, h, 28)),
    "qwen": lambda w, h: min(16_384, patches(w, h, 28)) + 2,
    "gemini 2": gemini_crops,
    "gemini 3": lambda w, h: 2240,
    "pixtral": lambda w, h: min(64 * 64, patches(w, h, 16)) + 64,
}


@pytest.mark.parametrize("billed", BILLED.values(), ids=BILLED)
@given(edges, edges)
def test_no_known_provider_bills_more_than_the_bound(billed: Any, width: int, height: int) -> None:
    assert billed(width, height) <= image_tokens(width, height)


def test_the_bound_equals_the_bill_of_the_most_expensive_provider() -> None:
    assert image_tokens(128, 64) == 2_833 + 5_667
    assert image_tokens(1024, 1024) == 2_833 + 4 * 5_667
    assert image_tokens(2048, 768) == 2_833 + 8 * 5_667


@given(st.integers(1, 2**31), st.integers(1, 2**31))
def test_any_size_that_a_header_can_state_has_a_bound(width: int, height: int) -> None:
    assert image_tokens(width, height) >= 2_833 + 5_667


# -- parts of messages ----------------------------------------------------------------------------


@pytest.mark.parametrize("data", SAMPLES.values(), ids=SAMPLES)
def test_a_picture_counts_by_its_pixels_not_by_its_base64(data: bytes) -> None:
    parts = content_of("Qué?", [("image/x", data + bytes(1 << 20))])
    assert bound_of_parts(parts) == len("Qué?".encode()) + image_tokens(640, 480)
    message = Message("user", parts)
    assert bound_tokens((message,)) == MESSAGE_OVERHEAD_TOKENS + bound_of_parts(parts)


def test_a_picture_of_unknown_size_counts_as_a_large_one() -> None:
    large = image_tokens(8_000, 8_000)
    encoded = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    for part in (
        {"type": "image", "media_type": "image/png", "data": encoded},
        {"type": "image", "data": "not base64!"},
        {"type": "image", "data": 3},
        {"type": "image", "url": "https://example.com/a.png"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}},
    ):
        assert bound_of_parts([part]) == large


def test_unknown_parts_count_by_their_size_in_bytes() -> None:
    for part in ({"type": "audio", "é": "x" * 100}, {}, {"type": 3}, "text", None):
        assert bound_of_parts([part]) == len(repr(part).encode())


@given(st.text(st.characters(exclude_categories=[]), max_size=30))
def test_a_prompt_beside_pictures_can_be_encoded_and_is_counted(prompt: str) -> None:
    (part,) = content_of(prompt, [])
    part["text"].encode()
    assert bound_of_parts([part]) == len(part["text"].encode())


def test_pictures_are_displayed_as_size_and_hash() -> None:
    data = png()
    text = display_text(content_of("What is it?", [("image/png", data)]))
    digest = hashlib.sha256(data).hexdigest()[:16]
    assert text == f"What is it?\n[image: image/png, {len(data):,} bytes, sha256 {digest}]"
    assert display_text("plain") == "plain"
    assert display_text([{"type": "image", "url": "https://x/a.png"}]) == "[image: https://x/a.png]"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "media_type": 3, "data": "c2VjcmV0" * 100 + "!"},
        {"type": "image", "data": "c2VjcmV0" * 100},
        {"type": "image", "url": "data:image/png;base64," + "c2VjcmV0" * 100},
        {"type": "image_url", "image_url": {"url": "data:;base64," + "c2VjcmV0" * 100}},
        {"type": "input_audio", "data": b"c2VjcmV0" * 100},
        {"c2": "c2VjcmV0" * 100},
        "c2VjcmV0" * 100,
    ],
)
def test_picture_data_is_never_displayed(part: Any) -> None:
    text = display_text([part])
    assert "c2VjcmV0" not in text
    assert text.startswith("[")
