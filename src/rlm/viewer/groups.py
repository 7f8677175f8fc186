"""Runs that belong together, as their first event says: those of a chat, or of a batch."""

import msgspec
from msgspec import Struct

__all__ = ["group_in"]

KINDS = frozenset({"batch", "chat"})
MAX_NAME_CHARS = 200


class _Group(Struct):
    kind: str = ""
    name: str = ""


class _Settings(Struct):
    group: _Group | None = None


class _Started(Struct):
    settings: _Settings | None = None


_STARTED = msgspec.json.Decoder(_Started)


def group_in(line: bytes) -> tuple[str, str] | None:
    """Return the kind and name of a run's group; None if the line states no valid one."""
    if b'"group"' not in line:
        return None
    try:
        settings = _STARTED.decode(line).settings
    except (ValueError, RecursionError):
        return None
    group = None if settings is None else settings.group
    if group is None or group.kind not in KINDS or not group.name:
        return None
    return group.kind, group.name[:MAX_NAME_CHARS]
