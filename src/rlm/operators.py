"""Operators over many items for programs: `rlm.operators.classify(lines, ["spam", "ham"])`.

Each operator asks a model about every item and does the bookkeeping: it asks about equal items
once, packs prompts, asks again for missing replies, checks doubtful ones, and keeps to budgets.
Items that a limit leaves out are in `missing`. Every function has an async form: `aclassify`.

`model` is a name such as "openai/gpt-5-mini", a client, or an `RLM`. Other keywords are those of
`RLM`: `limits=Limits(max_cost_usd=0.5)`. With `journal=True`, a `run_id` names the run: an
interrupted run continues and pays for nothing twice.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from rlm._util.html_card import MAX_ROWS, card_html
from rlm._util.notebook import make_room
from rlm.api import RLM
from rlm.context import store_context
from rlm.engine.answer_types import AnswerType, aanswer_type
from rlm.engine.operators import OperatorCall
from rlm.engine.task import Task
from rlm.errors import ConfigError
from rlm.portal import portal
from rlm.results import RunResult, Submission
from rlm.results.cards import Outline, ended_card, figures, problem_of
from rlm.wiring.resources import Model

__all__ = [
    "MergedText",
    "Results",
    "aanswer_each",
    "aclassify",
    "aextract",
    "amerge",
    "answer_each",
    "apairs",
    "arank",
    "awhere",
    "classify",
    "extract",
    "merge",
    "pairs",
    "rank",
    "where",
]

_log = logging.getLogger("rlm")

Item = TypeVar("Item")
Value = TypeVar("Value")
Check = Literal["unsure", "all", "none"]
WRONG_ARGUMENTS = ("kind", "size")
"""The limits of a `CallRefused` that mean wrong arguments."""


class Results(list[Value], Generic[Value]):
    """A list of results, in the order of the items.

    `missing` are the indexes of items without a result, and `unsure` of those whose label is in
    doubt. `note` is a line of figures, and `run` the run with its usage, cost and events. If the
    operator chooses items, `indexes` are their indexes.
    """

    def __init__(
        self, values: Iterable[Value], found: "_Found", indexes: Sequence[Any] | None = None
    ) -> None:
        super().__init__(values)
        self.missing: list[int] = found.missing
        self.unsure: list[int] = found.unsure
        self.note = found.note
        self.run = found.run
        self.indexes = indexes

    def _repr_html_(self) -> str:
        """Return a card for notebooks: the first values and the figures of the run."""
        make_room(self.run.run_id)
        run, places = self.run, self.indexes or range(len(self))
        card = ended_card(
            Outline(run.events),
            "" if run.stop_reason == "answer" else None,
            [self.note, *figures(0, run.usage.total, run.seconds)],
            problem=problem_of(run, None),
            command=run.run_id,
        )
        first = zip(places, self[:MAX_ROWS], strict=False)
        rows = [(str(place), str(value)) for place, value in first]
        return card_html(card._replace(rows=rows, rows_in_all=len(self)))


class MergedText(str):
    """An answer merged from many texts; `missing` are the indexes of texts that it leaves out."""

    __slots__ = ("missing", "note", "run")
    missing: list[int]
    note: str
    run: RunResult


async def aclassify(
    items: Iterable[Any],
    labels: Sequence[str],
    *,
    guide: str = "",
    check: Check = "unsure",
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> Results[str | None]:
    """Return the label that fits each item best; None for an item that is None or got no label.

    `guide` says where one label ends and another begins. Items that the model is unsure about are
    checked again; with `check="all"` every item is, with `check="none"` no item.
    """
    asked = {"labels": [each or "" for each in _texts(labels)], "guide": guide, "check": check}
    found = await _run("classify", _texts(items), asked, model, run_id, options)
    return Results(found.value, found)


async def awhere(
    items: Iterable[Item],
    condition: str,
    *,
    check: Check = "unsure",
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> Results[Item]:
    """Return the items that meet a condition; `indexes` are their indexes."""
    kept = list(items)
    asked = {"condition": condition, "check": check}
    found = await _run("where", _texts(kept), asked, model, run_id, options)
    return Results([kept[place] for place in found.value], found, found.value)


async def aextract(
    items: Iterable[Any],
    schema: Any,
    *,
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> Results[Any]:
    """Return a value for each item, None where there is none.

    The schema is a class (pydantic model, dataclass …), whose instances are returned; or a dict of
    fields with their types or descriptions, a list of fields, or a JSON schema.
    """
    kind = await _kind(schema)
    asked = {"schema": kind.schema if kind else _plain(schema)}
    found = await _run("extract", _texts(items), asked, model, run_id, options, kind=kind)
    if kind is None:
        return Results(found.value, found)
    return Results([await _instance(kind, value) for value in found.value], found)


async def aanswer_each(
    question: str,
    items: Iterable[Any],
    *,
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> Results[str | None]:
    """Return the answer that each item gives to a question, None where it gives none."""
    asked = {"question": question}
    found = await _run("answer_each", _texts(items), asked, model, run_id, options)
    return Results(found.value, found)


async def apairs(
    left: Iterable[Any],
    right: Iterable[Any] | None,
    condition: str,
    *,
    check: Check = "unsure",
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> Results[tuple[Any, Any]]:
    """Return the pairs (left item, right item) that meet a condition; `indexes` has their indexes.

    With `right=None`, the items of one list are paired with each other, each pair once. If labels
    of single items decide it, both sides are classified and no pairs are asked about.
    """
    lefts = list(left)
    rights = lefts if right is None else list(right)
    others = None if right is None else _texts(rights)
    asked = {"condition": condition, "check": check}
    found = await _run("pairs", _texts(lefts), asked, model, run_id, options, others)
    places = [(one, other) for one, other in found.value]
    return Results([(lefts[one], rights[other]) for one, other in places], found, places)


async def arank(
    items: Iterable[Item],
    criterion: str,
    k: int | None = None,
    *,
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> Results[Item]:
    """Return the `k` items that meet a criterion best, best first; all of them without `k`."""
    kept = list(items)
    found = await _run(
        "rank", _texts(kept), {"criterion": criterion, "k": k}, model, run_id, options
    )
    return Results([kept[place] for place in found.value], found, found.value)


async def amerge(
    texts: Iterable[Any],
    question: str,
    *,
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> MergedText:
    """Return one answer to a question from many texts; those that are None are left out."""
    kept = [text for text in texts if text is not None]
    found = await _run("merge", _texts(kept), {"question": question}, model, run_id, options)
    merged = MergedText(found.value or "")
    merged.missing, merged.note, merged.run = found.missing, found.note, found.run
    return merged


# -- the run behind an operator -------------------------------------------------------------------


class _Found:
    """The result of an operator, read from that of its run."""

    def __init__(self, name: str, count: int, run: RunResult) -> None:
        self.run = run
        told: dict[str, Any] = {} if run.answer_json is None else json.loads(run.answer_json)
        nothing: Any = [None] * count if name in ALIGNED else None if name == "merge" else []
        self.value = told.get("value", nothing)
        self.missing = list(told.get("missing", range(0 if told else count)))
        self.unsure = list(told.get("unsure", ()))
        self.note = told.get("note", f"{name}: no result: {run.detail}")
        if self.missing:
            _log.warning("%s", self.note)


ALIGNED = ("classify", "extract", "answer_each")
"""Operators with a result for every item; the others choose items, or merge them."""


async def _run(
    name: str,
    items: Sequence[str | None],
    asked: dict[str, Any],
    model: Model | RLM | None,
    run_id: str | None,
    options: dict[str, Any],
    others: Sequence[str | None] | None = None,
    kind: AnswerType | None = None,
) -> _Found:
    every = (*items, *(others or ()))
    texts = tuple(text or "" for text in every)
    call = OperatorCall(
        name=name,
        items=texts[: len(items)],
        others=None if others is None else texts[len(items) :],
        absent=tuple(place for place, text in enumerate(every) if text is None),
        options=asked,
        kind=kind,
    )
    if isinstance(model, RLM):
        if options:
            raise ConfigError(f"the RLM you passed already determines {', '.join(options)}")
        return _Found(name, len(items), await _answered(model, call, run_id))
    engine = RLM(model, **options)
    try:
        return _Found(name, len(items), await _answered(engine, call, run_id))
    finally:
        await engine.aclose()


async def _answered(engine: RLM, call: OperatorCall, run_id: str | None) -> RunResult:
    result = await engine.runner.answer(
        Task(call.query, store_context(call.context), operator=call), run_id=run_id
    )
    if result.limit in WRONG_ARGUMENTS:
        raise ConfigError(result.detail)
    return result


def _texts(items: Iterable[Any]) -> tuple[str | None, ...]:
    """Return items as texts for a model; None stays None."""
    if isinstance(items, str | bytes | Mapping) or not hasattr(type(items), "__iter__"):
        raise ConfigError(f"expected a list of items, not one {type(items).__name__}")
    return tuple(each if isinstance(each, str) else _text(each) for each in items)


def _text(item: Any) -> str | None:
    if item is None:
        return None
    if isinstance(item, list | dict):
        try:
            return json.dumps(item, ensure_ascii=False)
        except (TypeError, ValueError):
            pass
    return str(item)


async def _kind(schema: Any) -> AnswerType | None:
    """Return the answer type of a class; None for a schema that is data."""
    is_data = isinstance(schema, Mapping | list | tuple | set)
    return None if is_data else await aanswer_type(schema)


def _plain(schema: Any) -> Any:
    """Return a schema with types such as `int` replaced by their names."""
    if isinstance(schema, type):
        return schema.__name__
    if isinstance(schema, Mapping):
        return {str(name): _plain(each) for name, each in schema.items()}
    if isinstance(schema, list | tuple | set):
        return [_plain(each) for each in schema]
    return schema


async def _instance(kind: AnswerType, value: Any) -> Any:
    if value is None:
        return None
    text = json.dumps(value)
    return await kind.aparse(Submission(text, "extract", text))


# -- the blocking forms ---------------------------------------------------------------------------


def classify(
    items: Iterable[Any],
    labels: Sequence[str],
    *,
    guide: str = "",
    check: Check = "unsure",
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> Results[str | None]:
    """The blocking form of `aclassify`."""
    return portal().call(
        lambda: aclassify(
            items, labels, guide=guide, check=check, model=model, run_id=run_id, **options
        )
    )


def where(
    items: Iterable[Item],
    condition: str,
    *,
    check: Check = "unsure",
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> Results[Item]:
    """The blocking form of `awhere`."""
    return portal().call(
        lambda: awhere(items, condition, check=check, model=model, run_id=run_id, **options)
    )


def extract(
    items: Iterable[Any],
    schema: Any,
    *,
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> Results[Any]:
    """The blocking form of `aextract`."""
    return portal().call(lambda: aextract(items, schema, model=model, run_id=run_id, **options))


def answer_each(
    question: str,
    items: Iterable[Any],
    *,
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> Results[str | None]:
    """The blocking form of `aanswer_each`."""
    return portal().call(
        lambda: aanswer_each(question, items, model=model, run_id=run_id, **options)
    )


def pairs(
    left: Iterable[Any],
    right: Iterable[Any] | None,
    condition: str,
    *,
    check: Check = "unsure",
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> Results[tuple[Any, Any]]:
    """The blocking form of `apairs`."""
    return portal().call(
        lambda: apairs(left, right, condition, check=check, model=model, run_id=run_id, **options)
    )


def rank(
    items: Iterable[Item],
    criterion: str,
    k: int | None = None,
    *,
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> Results[Item]:
    """The blocking form of `arank`."""
    return portal().call(lambda: arank(items, criterion, k, model=model, run_id=run_id, **options))


def merge(
    texts: Iterable[Any],
    question: str,
    *,
    model: Model | RLM | None = None,
    run_id: str | None = None,
    **options: Any,
) -> MergedText:
    """The blocking form of `amerge`."""
    return portal().call(lambda: amerge(texts, question, model=model, run_id=run_id, **options))
