"""Values of a stranger's log as text, whatever is in them."""

import time
from typing import Any

import msgspec

from rlm.images import shown

__all__ = ["clock_time", "json_of", "text_of"]


def text_of(content: str | list[dict[str, Any]]) -> str:
    """A message's content for people; pictures by size and hash."""
    return content if isinstance(content, str) else "\n".join(_part(part) for part in content)


def _part(part: dict[str, Any]) -> str:
    if part.get("type") == "text":
        text = part.get("text")
        return text if isinstance(text, str) else "[text]"
    try:
        return shown([part])
    except RecursionError:
        return "[part]"


def json_of(value: Any) -> str:
    """JSON of what was JSON before; null if it is nested too deep to be written again."""
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError:
        return "null"


def clock_time(seconds: float) -> str:
    """A moment in words that mean the same everywhere; empty if it is none."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) if seconds > 0 else ""
    except (ValueError, OverflowError, OSError):
        return ""
