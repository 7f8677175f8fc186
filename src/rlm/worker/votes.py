"""Majority of several answers."""

from __future__ import annotations

from .replies import FailedReply

__all__ = ["vote"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


def vote(answers: Iterable[Any]) -> Any:
    """The most frequent answer, ignoring case, spacing and a closing dot; ties go to the first."""
    first: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for answer in answers:
        if isinstance(answer, FailedReply):
            continue
        key = " ".join(str(answer).casefold().split()).rstrip(".!").strip()
        first.setdefault(key, answer)
        counts[key] = counts.get(key, 0) + 1
    if not counts:
        raise ValueError("there is no answer to vote on")
    return first[max(counts, key=counts.__getitem__)]


vote.__module__ = "__main__"
