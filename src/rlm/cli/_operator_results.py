"""What a resumed run of `rlm.operators` prints: the results that the first run would return."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from rlm.cli._errors import say
from rlm.engine.operators import OperatorCall
from rlm.errors import ConfigError
from rlm.results import RunResult

__all__ = ["with_results"]


def with_results(
    result: RunResult, operator: Mapping[str, Any], context: bytes | None, *, quiet: bool
) -> RunResult:
    """Return a result whose answer is what the operator found; its figures go to standard error.

    Without the context, which contained the items, chosen items are the numbers of their places.
    """
    if result.answer_json is None:
        return result
    try:
        found = json.loads(result.answer_json)
        value, note = found["value"], str(found["note"])
        if context is not None:
            value = _chosen(value, OperatorCall.recorded(operator, context))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise ConfigError(f"the results in the journal can't be read: {error}") from error
    if not quiet:
        say(f"{note[:1].upper()}{note[1:]}")
    return replace(result, answer=value)


def _chosen(value: Any, call: OperatorCall) -> Any:
    """Return the items that a value names by their places; other values unchanged."""
    if call.name in {"where", "rank"}:
        return [_item(call.items, each) for each in value]
    if call.name == "pairs":
        others = call.items if call.others is None else call.others
        return [[_item(call.items, one), _item(others, other)] for one, other in value]
    return value


def _item(items: Sequence[str], place: object) -> str:
    if not isinstance(place, int) or place < 0:
        raise ValueError(f"{place!r} is not the place of an item")
    return items[place]
