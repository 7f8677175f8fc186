"""JSON as it travels: forgiving when read, exact when written."""

import json
from typing import Any

from rlm._util.text import sendable
from rlm.errors import ConfigError

__all__ = ["dump", "parse"]


def parse(data: bytes | str) -> Any:
    """A decoded document; ValueError for anything that is none. Lone surrogates pass.

    NaN and Infinity, which are no JSON but often sent, become null.
    """
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dump(value: object) -> bytes:
    """UTF-8 JSON of a request body; lone surrogates become U+FFFD, as no server takes them."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"the request can't be written as JSON: {error}") from error
    return sendable(text).encode()
