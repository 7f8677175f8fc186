"""Compare two trajectories run by run and call by call, in whatever order they finished."""

import difflib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from rlm._util.text import counted
from rlm.events import (
    BudgetChanged,
    CallEnded,
    CallRetried,
    CallStarted,
    ContextHashed,
    DataRead,
    Diverged,
    Event,
    RunEnded,
    SessionOpened,
    ToolCalled,
)

__all__ = ["Difference", "compare", "diff"]

LINE_CHARS = 400
SHOWN_LINES = 80
COMPARED_LINES = 5_000


class Difference(Struct, frozen=True):
    """Where two executions differ, and how."""

    where: str
    diff: str


def diff(recorded: str, now: str) -> str:
    """Return a unified diff by lines, cut to a readable size; empty if the texts are the same."""
    if recorded == now:
        return ""
    lines = difflib.unified_diff(_lines(recorded), _lines(now), "recorded", "now", lineterm="", n=2)
    shown = [line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}…" for line in lines]
    if len(shown) > SHOWN_LINES:
        shown = [*shown[:SHOWN_LINES], f"… {counted(len(shown) - SHOWN_LINES, 'more line')}"]
    return "\n".join(shown) or "the texts differ in their line endings, or further down"


def _lines(text: str) -> list[str]:
    return text.splitlines()[:COMPARED_LINES]


PASSING = (BudgetChanged, CallRetried, DataRead, Diverged, SessionOpened)
"""Events that depend on the moment: the order of payments and of threads, retries, the machine.

What `DataRead` sums up is compared request by request.
"""

BY_CALL = (CallStarted, CallEnded, ToolCalled)
MOMENTARY = frozenset(
    {"wall_time", "monotonic_time", "seconds", "retries", "stored", "schema_version", "settings"}
)

Facts = dict[str, Any]


def compare(recorded: Iterable[Event], now: Iterable[Event]) -> tuple[list[Difference], int]:
    """Return all differences, in the order of the recording, and how many events were compared."""
    first, second = _arranged(recorded), _arranged(now)
    found: list[Difference] = []
    for where in [*first, *(each for each in second if each not in first)]:
        old, new = first.get(where, []), second.get(where, [])
        for number in range(max(len(old), len(new))):
            one = old[number] if number < len(old) else None
            other = new[number] if number < len(new) else None
            if not _is_same(one, other):
                found.append(_difference(one, other))
                break  # What follows also differs, and adds nothing.
    return found, sum(map(len, first.values()))


def _is_same(one: Facts | None, other: Facts | None) -> bool:
    """Ignore the hash of a run that ended before its large context was hashed."""
    if one and other and "" in (one.get("context_sha256"), other.get("context_sha256")):
        return {**one, "context_sha256": ""} == {**other, "context_sha256": ""}
    return one == other


def _arranged(events: Iterable[Event]) -> dict[str, list[Facts]]:
    """Group events: by run what happens in order, by call what may happen in any order."""
    found: dict[str, list[Facts]] = defaultdict(list)
    for event in events:
        if isinstance(event, PASSING):
            continue
        if isinstance(event, ContextHashed):  # its position depends on the moment
            if started := found.get(event.run_id):
                started[0]["context_sha256"] = event.context_sha256
            continue
        where = event.call_id if isinstance(event, BY_CALL) else event.run_id
        facts: Facts = msgspec.to_builtins(event)
        found[where].append(_lasting(facts))
        if isinstance(event, RunEnded):
            # Compared request by request; a resumed run also counts requests of earlier executions.
            del found[where][-1]["usage"]
            if found[where][0].get("context_kind") == "text":
                _forget_the_file(found[where][-1])
    return found


def _forget_the_file(ended: Facts) -> None:
    """Let a text that was a string in the recording be a file now: the places are the same."""
    for citation in ended.get("citations", ()):
        citation["file"] = None


def _lasting(facts: Facts) -> Facts:
    """Return what is the same on every execution; a traceback depends on the machine."""
    kept = {name: value for name, value in facts.items() if name not in MOMENTARY}
    kept.pop("traceback", None)
    kept["new_messages"] = None  # Requests are compared by their hashes.
    return kept


def _difference(one: Facts | None, other: Facts | None) -> Difference:
    known = one or other or {}
    about = known.get("call_id") or f"run {known['run_id']}, step {known['step']}"
    where = f"{known['type']} of {about}"
    if one is None or other is None:
        missing = "was not recorded" if one is None else "did not happen again"
        return Difference(f"{where} {missing}", diff(_text_of(one or {}), _text_of(other or {})))
    changed = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return Difference(
        where,
        "\n".join(diff(_text(n, one.get(n)), _text(n, other.get(n))) for n in changed),
    )


def _text(name: str, value: Any) -> str:
    return value if isinstance(value, str) and "\n" in value else f"{name}: {value}"


def _text_of(facts: Facts) -> str:
    shown = ("code", "text", "prompt", "reply", "answer", "query", "name", "error")
    return "\n".join(_text(name, facts[name]) for name in shown if facts.get(name))
