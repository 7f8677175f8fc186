"""Run one operator from its checked arguments to its result.

The same code serves cells (`classify(...)` in the REPL) and programs (`rlm.operators`).
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct, field, to_builtins

from rlm._util.off_loop import off_loop
from rlm._util.text import counted
from rlm.calls.calls import Calls
from rlm.calls.scope import Scope
from rlm.config import RunConfig
from rlm.engine.answer_types import AnswerType
from rlm.engine.operators import answering, comparing, labelling
from rlm.engine.operators.labelling import CHECKS
from rlm.engine.operators.operation import NOWHERE, Found, Operation, digest_of, distinct
from rlm.engine.operators.shapes import shape_of
from rlm.errors import CallRefused, ConfigError
from rlm.prompts import call_chars

__all__ = ["OPERATORS", "OperatorCall", "OperatorResult", "run_operator"]

MAX_LABELS = 500
MAX_PAIRS = 200_000
"""How many pairs are returned: all of a few thousand items would fill the memory."""
MAX_QUERY_CHARS = 500


class OperatorCall(Struct, frozen=True, kw_only=True):
    """An operator and what it is asked to do. `others` are the right items of `pairs`.

    `absent` are the indexes of None items, whose texts are empty; those of `others` follow.
    `kind` is the type of extracted values, if the schema is a class.
    """

    name: str
    items: tuple[str, ...]
    others: tuple[str, ...] | None = None
    absent: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: AnswerType | None = None

    @property
    def query(self) -> str:
        """The query of the run of an operator."""
        told = self.options.get("question") or self.options.get("condition")
        told = told or self.options.get("criterion") or self.options.get("labels") or ""
        text = ", ".join(map(str, told)) if isinstance(told, list | tuple) else str(told)
        return f"{self.name}: {text}"[:MAX_QUERY_CHARS]

    @property
    def context(self) -> dict[str, Any]:
        """The items, as the context of a run."""
        items = {"items": list(self.items)}
        return items if self.others is None else {**items, "others": list(self.others)}

    @property
    def settings(self) -> dict[str, Any]:
        """What else is needed, besides the items, to run it again."""
        return {"name": self.name, "options": dict(self.options), "absent": self.absent}

    @classmethod
    def recorded(cls, settings: Mapping[str, Any], context: bytes) -> "OperatorCall":
        """Return the call of a recorded run; ConfigError if it is not an operator's."""
        try:
            held = json.loads(context)
            others = held.get("others")
            return cls(
                name=str(settings["name"]),
                items=tuple(map(str, held["items"])),
                others=None if others is None else tuple(map(str, others)),
                absent=tuple(map(int, settings.get("absent", ()))),
                options=dict(settings["options"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"the record does not say which items its operator was given: {error}"
            ) from error


class OperatorResult(Struct, frozen=True, kw_only=True):
    """What an operator found. `value` is JSON; indexes in it count the items from 0.

    `missing` are the indexes of items without a result, and `reason` says why; `unsure` are those
    whose label is in doubt. `note` is the line of figures.
    """

    value: Any
    note: str
    missing: tuple[int, ...] = ()
    unsure: tuple[int, ...] = ()
    reason: str = ""
    limit: str | None = None

    async def to_json(self) -> str:
        """Return the result as JSON, encoded in a thread because it may be long."""
        return await asyncio.to_thread(lambda: json.dumps(to_builtins(self), ensure_ascii=False))


async def run_operator(
    call: OperatorCall, calls: Calls, scope: Scope, config: RunConfig, model: str
) -> OperatorResult:
    """Run an operator; raise CallRefused if its arguments are wrong."""
    run = OPERATORS.get(call.name)
    if run is None:
        known = ", ".join(OPERATORS)
        raise CallRefused(f"unknown operator {call.name[:60]!r}; operators: {known}", limit="kind")
    operation = Operation(call.name, calls, scope, config, model)
    try:
        chars = sum(map(len, call.items)) + sum(map(len, call.others or ()))
        given = await off_loop(chars, lambda: _Arguments(call, operation))
        return await run(given, operation)
    except BaseException as error:
        operation.abort(error)
        raise


class _Arguments:
    """The arguments of a call, checked as they are read; its items are compared and hashed."""

    def __init__(self, call: OperatorCall, operation: Operation) -> None:
        self._call = call
        self.items = call.items
        self.others = call.others
        self.kind = call.kind
        absent = frozenset(call.absent)
        self.unique, self.places = distinct(call.items, absent)
        self.unique_others, self.other_places = distinct(
            call.others or (), frozenset(place - len(call.items) for place in absent)
        )
        self._digest = digest_of(call.name, dict(call.options), (*call.items, *(call.others or ())))
        self._most_chars = max(1_000, call_chars(operation.info) // 4)

    def text(self, name: str, *, required: bool = True) -> str:
        value = self._call.options.get(name, "")
        if not isinstance(value, str) or (required and not value.strip()):
            raise self._wrong(f"{name} must be a string")
        if len(value) > self._most_chars:
            raise self._wrong(f"{name} has more than {self._most_chars:,} characters")
        return value

    def labels(self) -> list[str]:
        labels = self._call.options.get("labels")
        if not isinstance(labels, list | tuple) or not all(isinstance(e, str) for e in labels):
            raise self._wrong("labels must be a list of strings")
        different = {" ".join(each.casefold().split()) for each in labels}
        if len(labels) < 2 or len(different) < len(labels) or "" in different:
            raise self._wrong("labels must be two or more different, non-empty strings")
        size = sum(map(len, labels))
        if len(labels) > MAX_LABELS or size > self._most_chars:
            raise self._wrong(f"{len(labels):,} labels of {size:,} characters are too many")
        return list(labels)

    def check(self) -> labelling.Check:
        value = self._call.options.get("check", "unsure")
        if value not in CHECKS:
            raise self._wrong(f"check must be one of {', '.join(CHECKS)}, not {str(value)[:60]!r}")
        return CHECKS[CHECKS.index(value)]

    def count(self, name: str) -> int:
        value = self._call.options.get(name)
        if value is None:
            return len(self.items)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._wrong(f"{name} must be an integer of at least 1")
        return min(value, len(self.items))

    @property
    def schema(self) -> Any:
        return self._call.options.get("schema")

    def begin(self, operation: Operation, task: str) -> None:
        count = len(self.items) + len(self.others or ())
        unique = len(self.unique) + len(set(self.others or ()))
        operation.begin(task, count, unique, self._digest)
        operation.figures.absent = self.places.count(NOWHERE)

    def everywhere(self, found: Mapping[int, Any]) -> list[Any]:
        """Return the value of every item, given those of the distinct items."""
        return [found.get(place) for place in self.places]

    def missing(self, found: Mapping[int, Any]) -> list[int]:
        return [item for item, place in enumerate(self.places) if place not in found]

    def _wrong(self, problem: str) -> CallRefused:
        return CallRefused(f"{self._call.name}: {problem}", limit="kind")


async def _classify(given: _Arguments, operation: Operation) -> OperatorResult:
    labels, guide, check = given.labels(), given.text("guide", required=False), given.check()
    given.begin(operation, ", ".join(labels))
    found = await labelling.classify(operation, given.unique, labels, guide, check)
    ended = operation.end(given.missing(found.labels))
    return _result(given.everywhere(found.labels), ended, _unsure(given, found.unsure))


async def _where(given: _Arguments, operation: Operation) -> OperatorResult:
    condition, check = given.text("condition"), given.check()
    given.begin(operation, condition)
    found = await labelling.where(operation, given.unique, condition, check)
    chosen = [item for item, label in enumerate(given.everywhere(found.labels)) if label == "yes"]
    operation.figures.notes.append(f"{len(chosen):,} chosen")
    ended = operation.end(given.missing(found.labels))
    return _result(chosen, ended, _unsure(given, found.unsure))


def _unsure(given: _Arguments, doubtful: frozenset[int]) -> tuple[int, ...]:
    return tuple(item for item, place in enumerate(given.places) if place in doubtful)


def _result(value: Any, ended: Found, unsure: tuple[int, ...] = ()) -> OperatorResult:
    """Return a value with what its operation reports about itself."""
    return OperatorResult(
        value=value,
        note=ended.text,
        missing=ended.missing,
        unsure=unsure,
        reason=ended.reason,
        limit=ended.limit,
    )


async def _extract(given: _Arguments, operation: Operation) -> OperatorResult:
    shape = await shape_of(given.schema, given.kind)
    given.begin(operation, shape.description)
    found = await answering.extract(operation, given.unique, shape.description, shape.check)
    ended = operation.end(given.missing(found))
    return _result(given.everywhere(found), ended)


async def _answer_each(given: _Arguments, operation: Operation) -> OperatorResult:
    question = given.text("question")
    given.begin(operation, question)
    found = await answering.answer_each(operation, given.unique, question)
    answered = sum(answer is not None for answer in given.everywhere(found))
    operation.figures.notes.append(f"{answered:,} with an answer")
    ended = operation.end(given.missing(found))
    return _result(given.everywhere(found), ended)


async def _pairs(given: _Arguments, operation: Operation) -> OperatorResult:
    condition, check = given.text("condition"), given.check()
    same = given.others is None
    # Equal items are judged once.
    lefts, on_left = given.unique, given.places
    rights, on_right = lefts, on_left
    if given.others is not None:
        rights, on_right = given.unique_others, given.other_places
    given.begin(operation, condition)
    if not lefts or not rights:
        absent = [item for item, place in enumerate(on_left) if place == NOWHERE]
        ended = operation.end(absent)
        return OperatorResult(value=[], note=ended.text, missing=ended.missing)
    found = await comparing.pairs(operation, lefts, rights, condition, check, same=same)
    every = _all_pairs(found.partners, on_left, on_right, same=same)
    places = await asyncio.to_thread(lambda: list(islice(every, MAX_PAIRS + 1)))
    has_more = len(places) > MAX_PAIRS
    counting = "only the first {:,} pairs are returned" if has_more else "{:,} pairs"
    operation.figures.notes.append(counting.format(min(len(places), MAX_PAIRS)))
    unknown = {*found.missing_left, NOWHERE}
    missing = [item for item, place in enumerate(on_left) if place in unknown]
    unjudged = sum(place in found.missing_right for place in on_right)
    if unjudged and not same:
        operation.figures.notes.append(f"{counted(unjudged, 'right item')} not judged")
    ended = operation.end(missing)
    return _result(places[:MAX_PAIRS], ended)


def _all_pairs(
    partners: Callable[[int], Iterator[int]],
    on_left: Sequence[int],
    on_right: Sequence[int],
    *,
    same: bool,
) -> Iterator[tuple[int, int]]:
    """Yield pairs of items, in order, from the partners of distinct texts.

    Within one list a pair counts once, whichever side its items are on.
    """
    items = _by_place(on_right)
    for one, place in enumerate(on_left):
        if place == NOWHERE:
            continue
        others = sorted({item for other in partners(place) for item in items[other]})
        yield from ((one, other) for other in others if not same or one < other)


def _by_place(places: Sequence[int]) -> dict[int, list[int]]:
    items: dict[int, list[int]] = {}
    for item, place in enumerate(places):
        items.setdefault(place, []).append(item)
    return items


async def _rank(given: _Arguments, operation: Operation) -> OperatorResult:
    criterion, k = given.text("criterion"), given.count("k")
    given.begin(operation, criterion)
    best, unrated = await comparing.rank(operation, given.unique, criterion, k)
    items = _by_place(given.places)
    order = [item for place in best for item in items[place]][:k]
    left_out = {*unrated, NOWHERE}
    ended = operation.end([item for item, place in enumerate(given.places) if place in left_out])
    return _result(order, ended)


async def _merge(given: _Arguments, operation: Operation) -> OperatorResult:
    question = given.text("question")
    given.begin(operation, question)
    answer, lost = await answering.merge(operation, given.unique, question)
    unused = {*lost, NOWHERE}
    ended = operation.end([item for item, place in enumerate(given.places) if place in unused])
    return _result(answer, ended)


OPERATORS: dict[str, Callable[[_Arguments, Operation], Awaitable[OperatorResult]]] = {
    "classify": _classify,
    "where": _where,
    "extract": _extract,
    "answer_each": _answer_each,
    "pairs": _pairs,
    "rank": _rank,
    "merge": _merge,
}
