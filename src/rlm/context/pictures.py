"""Pictures among the files of a context."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from rlm._util.text import counted
from rlm.context.scanning import FILE_NAME
from rlm.data.filesystem.opening import Stamp, blocks_of, display_path
from rlm.errors import ConfigError
from rlm.images import MAX_IMAGE_BYTES, Picture, media_type_of, picture_of

__all__ = [
    "describe_picture",
    "describe_pictures",
    "looks_like_picture",
    "manifest",
    "read_picture",
    "stand_in",
]

MAX_TOLD = 10


def looks_like_picture(head: bytes) -> bool:
    """Return whether the beginning of a binary file is that of a picture for models."""
    return media_type_of(head) is not None


def read_picture(path: Path, stamp: Stamp) -> Picture | None:
    """Return the picture in a file; None if it is not one, or exceeds `MAX_IMAGE_BYTES`."""
    if stamp.size > MAX_IMAGE_BYTES:
        return None
    data = b"".join(blocks_of(path, stamp))
    digest = hashlib.sha256(data).digest()

    def read() -> bytes:
        again = b"".join(blocks_of(path, stamp))
        if hashlib.sha256(again).digest() != digest:
            raise ConfigError(f"{display_path(path)} changed after you passed it; ask again")
        return again

    return picture_of(data, read)


def describe_picture(picture: Picture, expression: str) -> str:
    """Describe a context that is a picture; `expression` is how code refers to it."""
    return (
        f"bytes, {counted(picture.size_bytes, 'byte')}: a picture, {_facts(picture)}. "
        f"Look at it with llm_query(question, images=[{expression}])."
    )


def describe_pictures(pictures: Mapping[str, Picture]) -> str:
    """Describe pictures beside a text: their number, first names, and use in code."""
    if not pictures:
        return ""
    plain = {name: each for name, each in pictures.items() if FILE_NAME.fullmatch(name)}
    first = [f"{name} ({_facts(each)})" for name, each in list(plain.items())[:MAX_TOLD]]
    more = f" and {len(pictures) - len(first):,} more" if len(pictures) > len(first) else ""
    names = f": {', '.join(first)}{more}" if first else ""
    return (
        f" {counted(len(pictures), 'picture')}, listed in the variable `pictures`{names}. "
        "Look at one with llm_query(question, images=[name])."
    )


def stand_in(pictures: Mapping[str, Picture]) -> str:
    """Return a text that replaces a picture, for models that only read text."""
    return "\n".join(
        f"[image: {display_path(name)}, {_facts(each)}]" for name, each in pictures.items()
    )


def manifest(pictures: Mapping[str, Picture]) -> list[dict[str, str | int]]:
    """Return the value of the variable `pictures` in the REPL."""
    return [{"name": name, **each.facts()} for name, each in pictures.items()]


def _facts(picture: Picture) -> str:
    return f"{picture.media_type}, {picture.width:,} x {picture.height:,} pixels"
