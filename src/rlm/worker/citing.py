"""`cite`, with which a cell names a place in the context that supports its answer.

The host looks up the place in its own copy of the context: what a cell says is not trusted.
"""

from __future__ import annotations

import operator

from . import wire
from .calls import meta
from .channel import question
from .replies import CallFailed

__all__ = ["cite"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .calls import Dialogue

_MAX_OFFSET = 1 << 53


def cite(start: Any, end: Any = None, name: Any = None) -> Dialogue:
    """Cite a place that supports the answer: by offsets into `context`, or by a verbatim quote.

    For a dict, a list or files, `name` selects the text by key or index. Returns the cited text; if
    there is no such place, prints why and returns None.
    """
    if isinstance(start, str):
        parts, name = [start], end if name is None else name
        place: dict[str, Any] = {"start": None, "end": None}
    else:
        parts, place = [], {"start": _offset(start), "end": _offset(end)}
    if name is not None and not isinstance(name, str):
        name = _offset(name)
    arguments = wire.to_json({**place, "name": name})
    answer = yield question("cite", arguments, parts)
    told = meta(answer, CallFailed)
    if "problem" in told:
        print(f"cite: {told['problem']}")
        return None
    return answer.texts(1)[0]


def _offset(value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError('use cite(start, end), cite(start, end, name) or cite("quote")') from None
    if abs(number) > _MAX_OFFSET:
        raise ValueError(f"{number} is not an offset into the context")
    return number
