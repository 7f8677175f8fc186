"""Neutral messages and parts, as the dialects with formats of their own read them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rlm._util.text import sendable
from rlm.errors import ConfigError
from rlm.messages import Message

__all__ = [
    "EMPTY",
    "Image",
    "after_instructions",
    "image_of",
    "is_blank",
    "late_instructions",
    "parts_of",
    "same_text",
]

EMPTY = "(empty)"
"""Stands for a turn without content: providers refuse those, and leaving it out joins others."""


class Image(NamedTuple):
    """An image as base64 `data`, or where it is."""

    media_type: str | None
    data: str | None = None
    url: str = ""


def parts_of(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A message's content as parts; blank texts are left out, because providers refuse them."""
    if isinstance(content, str):
        return [] if is_blank(content) else [{"type": "text", "text": content}]
    for part in content:
        if not isinstance(part, dict):
            raise ConfigError(f"a content part must be a dict, not {type(part).__name__}")
    return [
        part for part in content if part.get("type") != "text" or not is_blank(part.get("text"))
    ]


def is_blank(text: Any) -> bool:
    return isinstance(text, str) and not text.strip()


def same_text(one: str, other: str) -> bool:
    """Whether both are the same on the wire, where there are no lone surrogates."""
    return one == other or sendable(one) == sendable(other)


def after_instructions(messages: Sequence[Message]) -> int:
    """How many messages stand at the beginning that are all the system's."""
    for number, message in enumerate(messages):
        if message.role != "system":
            return number
    return len(messages)


def late_instructions(message: Message) -> list[dict[str, Any]]:
    """A system message among the turns, as parts of the user's turn there.

    Moved to the front it would change what comes before every turn: caches and signatures of
    thoughts hold only for an unchanged beginning.
    """
    parts = parts_of(message.content)
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    if not texts or len(texts) < len(parts):
        return parts
    text = "\n\n".join(texts)
    return [{"type": "text", "text": f"<system>\n{text}\n</system>"}]


def image_of(part: dict[str, Any]) -> Image | None:
    """The image in a neutral part; None for every other part, a provider's own image included."""
    if part.get("type") != "image" or not ("data" in part or "url" in part):
        return None
    if "data" in part:
        return _with_type(part.get("media_type"), part["data"])
    url = part["url"]
    if not isinstance(url, str):
        raise ConfigError("the url of an image part must be a string")
    if not url.startswith("data:"):
        return Image(part.get("media_type"), url=url)
    about, comma, data = url.removeprefix("data:").partition(",")
    if not comma or not about.endswith(";base64"):
        raise ConfigError("an image's data URL must hold base64: data:image/png;base64,...")
    return _with_type(about.removesuffix(";base64") or part.get("media_type"), data)


def _with_type(media_type: Any, data: Any) -> Image:
    if not isinstance(media_type, str) or not isinstance(data, str):
        raise ConfigError("an image part needs a media_type, e.g. image/png, and data in base64")
    return Image(media_type, data)
