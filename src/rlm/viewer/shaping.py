"""Events as the page gets them: plain values, long texts cut, whatever a stranger wrote into them.

A cut text keeps its beginning, and `cut` tells how long it was, by its field. Texts deeper inside
have names with dots, such as `new_messages.0.content`; lists and dicts are cut in the same way.
"""

from typing import Any

import msgspec

from rlm.events import Event
from rlm.viewer.library import Unknown

__all__ = ["Cutter", "text_in"]

MOST_CHARS = 20_000
MOST_ITEMS = 1_000
MOST_LEVELS = 20
MOST_TEXT_CHARS = 5_000_000
ANSWER_CHARS = 8_000_000
SCANT_CHARS = 200
"""When an answer has grown too long, so much is left of every further text."""


class Cutter:
    """For one answer: it knows how much is in it already."""

    def __init__(self, most_chars: int = MOST_CHARS) -> None:
        self._most_chars = most_chars
        self._chars = 0

    def shaped(self, event: Event, number: int) -> dict[str, Any]:
        cut: dict[str, int] = {}
        plain: dict[str, Any] = msgspec.to_builtins(event)
        told = {name: self._short(value, name, cut, 1) for name, value in plain.items()}
        told["index"] = number
        return {**told, "cut": cut} if cut else told

    def _short(self, value: Any, name: str, cut: dict[str, int], level: int) -> Any:
        if isinstance(value, str):
            most = self._most_chars if self._chars < ANSWER_CHARS else SCANT_CHARS
            if len(value) > most:
                cut[name], value = len(value), value[:most]
            self._chars += len(value)
            return value
        if not isinstance(value, list | dict):
            return value
        if level > MOST_LEVELS:
            return "…"
        if len(value) > MOST_ITEMS:
            cut[name] = len(value)
        if isinstance(value, list):
            items = enumerate(value[:MOST_ITEMS])
            return [self._short(item, f"{name}.{at}", cut, level + 1) for at, item in items]
        names = list(value)[:MOST_ITEMS]
        return {key: self._short(value[key], f"{name}.{key}", cut, level + 1) for key in names}


def text_in(event: Event, field: str) -> dict[str, Any]:
    """The whole text of a field, or of one inside it; a very long one is cut."""
    value: Any = msgspec.to_builtins(event)
    for name in field.split(".", MOST_LEVELS):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name[:9]) < len(value):
            value = value[int(name[:9])]
        else:
            raise Unknown("this event has no such text")
    if not isinstance(value, str):
        raise Unknown("this field of the event is no text")
    if len(value) > MOST_TEXT_CHARS:
        return {"text": value[:MOST_TEXT_CHARS], "chars": len(value)}
    return {"text": value}
