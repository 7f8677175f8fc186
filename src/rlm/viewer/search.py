"""Plain text in everything a tree of runs said, in bounded time and memory."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from rlm.events import Event
from rlm.viewer.records import RecordFile

__all__ = ["search"]

MOST_SECONDS = 10.0
AROUND_CHARS = 80
UNTOLD = frozenset({"type", "run_id", "parent_id", "call_id", "parent_call_id", "digest"})
"""What is no text that anybody wrote."""

_PLAIN = re.compile(r"[ !#-\[\]-~]+")
"""Characters that JSON leaves as they are."""


def search(
    file: RecordFile, run_ids: list[str], query: str, limit: int, stop: threading.Event
) -> tuple[list[dict[str, Any]], bool]:
    """The first events that hold the text, whatever its case, and whether there may be more."""
    wanted = query.lower()
    deadline = time.monotonic() + MOST_SECONDS
    hits: list[dict[str, Any]] = []
    first_look = _first_look(wanted, stop, deadline)
    for _, number, event in file.tree_events(run_ids, passes=first_look):
        if stop.is_set() or time.monotonic() > deadline:
            return hits, True
        found = next(_excerpts(event, wanted), None)
        if found is None:
            continue
        if len(hits) >= limit:
            return hits, True
        hits.append(
            {
                "run_id": event.run_id,
                "step": event.step,
                "index": number,
                "type": str(type(event).__struct_config__.tag),
                "field": found[0],
                "cell": getattr(event, "cell", None),
                "call_id": getattr(event, "call_id", None),
                "excerpt": found[1],
            }
        )
    return hits, False


def _first_look(
    wanted: str, stop: threading.Event, deadline: float
) -> Callable[[bytes], bool] | None:
    """Whether a line can hold the text at all: most can't, and need no decoding."""
    sure = max(_PLAIN.findall(wanted), key=len, default="").encode()

    def passes(line: bytes) -> bool:
        # What must be ended passes, so that the search itself can end.
        return sure in line.lower() or stop.is_set() or time.monotonic() > deadline

    return passes if sure else None


def _excerpts(event: Event, wanted: str) -> Iterator[tuple[str, str]]:
    """The field that holds the text, and what stands around it there."""
    for name, value in msgspec.to_builtins(event).items():
        for text in () if name in UNTOLD else _texts(value):
            at = text.lower().find(wanted)
            if at >= 0:
                start = max(0, at - AROUND_CHARS)
                excerpt = text[start : at + len(wanted) + AROUND_CHARS]
                yield name, f"{'…' if start else ''}{excerpt}"


def _texts(value: Any) -> Iterator[str]:
    """Every text in it, without recursion: how deep it is, is a stranger's choice."""
    ahead: list[Any] = [value]
    while ahead:
        item = ahead.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            ahead += [*reversed(item.values())]
        elif isinstance(item, list | tuple):
            ahead += reversed(item)
