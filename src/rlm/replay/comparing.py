"""Two trajectories side by side: run by run, call by call, whatever order they finished in."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from rlm.events import (
    BudgetChanged,
    CallEnded,
    CallRetried,
    CallStarted,
    ContextHashed,
    Diverged,
    Event,
    SessionOpened,
    ToolCalled,
)
from rlm.replay.differences import Difference, diff

__all__ = ["compare"]

PASSING = (BudgetChanged, CallRetried, Diverged, SessionOpened)
"""What depends on the moment: the order of payments, retries, the machine."""

BY_CALL = (CallStarted, CallEnded, ToolCalled)
MOMENTARY = frozenset(
    {"wall_time", "monotonic_time", "seconds", "retries", "stored", "schema_version", "settings"}
)

Facts = dict[str, Any]


def compare(recorded: Iterable[Event], now: Iterable[Event]) -> tuple[list[Difference], int]:
    """All differences, in the order of the recording, and how many events were compared."""
    first, second = _arranged(recorded), _arranged(now)
    found: list[Difference] = []
    for where in [*first, *(each for each in second if each not in first)]:
        old, new = first.get(where, []), second.get(where, [])
        for number in range(max(len(old), len(new))):
            one = old[number] if number < len(old) else None
            other = new[number] if number < len(new) else None
            if not _is_same(one, other):
                found.append(_difference(one, other))
                break  # What follows from it differs as well, and says no more.
    return found, sum(map(len, first.values()))


def _is_same(one: Facts | None, other: Facts | None) -> bool:
    """A run that ended before its large context was hashed has no hash to compare."""
    if one and other and "" in (one.get("context_sha256"), other.get("context_sha256")):
        return {**one, "context_sha256": ""} == {**other, "context_sha256": ""}
    return one == other


def _arranged(events: Iterable[Event]) -> dict[str, list[Facts]]:
    """By run what happens in order, by call what may happen in any."""
    found: dict[str, list[Facts]] = defaultdict(list)
    for event in events:
        if isinstance(event, PASSING):
            continue
        if isinstance(event, ContextHashed):  # When it comes depends on the moment.
            if started := found.get(event.run_id):
                started[0]["context_sha256"] = event.context_sha256
            continue
        where = event.call_id if isinstance(event, BY_CALL) else event.run_id
        facts: Facts = msgspec.to_builtins(event)
        found[where].append(_lasting(facts))
    return found


def _lasting(facts: Facts) -> Facts:
    """What is the same on every execution; a traceback tells of the machine, too."""
    kept = {name: value for name, value in facts.items() if name not in MOMENTARY}
    kept.pop("traceback", None)
    kept["new_messages"] = None  # What is asked is compared by its hash.
    return kept


def _difference(one: Facts | None, other: Facts | None) -> Difference:
    known = one or other or {}
    about = known.get("call_id") or f"run {known['run_id']}, step {known['step']}"
    where = f"{known['type']} of {about}"
    if one is None or other is None:
        missing = "was not recorded" if one is None else "did not happen again"
        return Difference(f"{where} {missing}", diff(_shown(one or {}), _shown(other or {})))
    changed = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return Difference(
        where,
        "\n".join(diff(_text(n, one.get(n)), _text(n, other.get(n))) for n in changed),
    )


def _text(name: str, value: Any) -> str:
    return value if isinstance(value, str) and "\n" in value else f"{name}: {value}"


def _shown(facts: Facts) -> str:
    told = ("code", "text", "prompt", "reply", "answer", "query", "name", "error")
    return "\n".join(_text(name, facts[name]) for name in told if facts.get(name))
