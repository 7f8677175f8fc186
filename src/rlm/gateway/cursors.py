"""Where an answer ended: texts that mean something only to the gateway, and promise nothing."""

import base64
import binascii
import json
from typing import Any

import msgspec

from rlm.gateway.refusals import Refused

__all__ = ["cursor_of", "read_cursor"]

MOST_CURSOR_CHARS = 20_000


def cursor_of(value: Any) -> str:
    """Where an answer ended, as a text that a client hands back."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def read_cursor(cursor: str, kind: Any) -> Any:
    """What `cursor_of` made; a client may send anything."""
    if len(cursor) > MOST_CURSOR_CHARS:
        raise Refused("this is no cursor of an earlier answer")
    try:
        value = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return msgspec.convert(value, kind)
    except (binascii.Error, ValueError, RecursionError):
        raise Refused("this is no cursor of an earlier answer") from None
