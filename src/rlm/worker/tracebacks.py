"""An exception as a model should see it: short, with the offending line, without our frames."""

from __future__ import annotations

import os
import traceback

from .bounds import MAX_ERROR_TYPE_CHARS, MAX_MESSAGE_CHARS, MAX_TRACEBACK_CHARS
from .capture import cut
from .variables import type_name

__all__ = ["describe"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_FRAMES_READ = 40
_FRAMES_SHOWN = 12


def describe(error: BaseException) -> dict[str, str]:
    """The type, message and trimmed traceback of what ended a cell; it never raises."""
    name = type_name(error)
    try:
        message = str(error)
    except BaseException:
        message = f"<unprintable {name}>"
    try:
        text = _format(error)
    except BaseException:
        text = f"{name}: {message}"
    return {
        "type": name[:MAX_ERROR_TYPE_CHARS],
        "message": cut(message, MAX_MESSAGE_CHARS),
        "traceback": cut(text, MAX_TRACEBACK_CHARS),
    }


def _format(error: BaseException) -> str:
    report = traceback.TracebackException(
        type(error), error, error.__traceback__, limit=-_FRAMES_READ
    )
    todo: list[Any] = [report]
    while todo:
        each = todo.pop()
        shown = [frame for frame in each.stack if not frame.filename.startswith(_HERE)]
        each.stack[:] = shown[-_FRAMES_SHOWN:]
        linked = [each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ())]
        todo.extend(link for link in linked if link is not None)
    return "".join(report.format())
