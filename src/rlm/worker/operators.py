"""Operators over many items: the cell's side of what `rlm.engine.operators` does on the host.

Each is a dialogue of one call. It prints a line of figures, so that a model sees at once what was
done and what was not.
"""

from __future__ import annotations

import json

from . import wire
from .arguments import chunk_text, plain_schema, several
from .calls import meta
from .channel import question
from .replies import AwaitableList, CallFailed

__all__ = ["DIALOGUES", "Results"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .calls import Dialogue


class Results(AwaitableList):
    """A list of results. `missing` has the indexes of items without one, `unsure` of doubtful ones.

    `note` is the line of figures. `indexes` has the indexes of the items that an operator chose.
    """

    def __init__(self, values: Iterable[Any] = (), told: Any = None, indexes: Any = None) -> None:
        super().__init__(values)
        told = told or {}
        self.missing = list(told.get("missing", ()))
        self.unsure = list(told.get("unsure", ()))
        self.note = told.get("note", "")
        self.indexes = indexes

    def _plain(self) -> Results:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        told = {"missing": self.missing, "unsure": self.unsure, "note": self.note}
        return Results, (list(self), told, self.indexes)


def classify(
    items: Iterable[Any],
    labels: Iterable[str],
    guide: str = "",
    check: str = "unsure",
    model: str | None = None,
) -> Dialogue:
    """Return the label that fits each item best; None for an item that is None, or has no label.

    `guide` explains how the labels differ. Items that the model is not sure about are checked
    again; with `check="all"` every item is, with `check="none"` none.
    """
    items = several(items)
    options = {"labels": [str(label) for label in several(labels)], "guide": guide, "check": check}
    told = yield from _ask("classify", items, options, model)
    return Results(told["value"], told)


def where(
    items: Iterable[Any], condition: str, check: str = "unsure", model: str | None = None
) -> Dialogue:
    """Return the items that meet a condition, in order; `.indexes` has their indexes."""
    items = several(items)
    told = yield from _ask("where", items, {"condition": condition, "check": check}, model)
    return Results([items[place] for place in told["value"]], told, told["value"])


def extract(items: Iterable[Any], schema: Any, model: str | None = None) -> Dialogue:
    """Return a dict for each item: `extract(lines, {"name": "str", "age": "int"})`.

    The schema is a dict of fields with their types or descriptions, a list of fields, or a JSON
    schema.
    """
    options = {"schema": plain_schema(schema)}
    told = yield from _ask("extract", several(items), options, model)
    return Results(told["value"], told)


def answer_each(question: str, items: Iterable[Any], model: str | None = None) -> Dialogue:
    """Return the answer that each item gives to a question, in order; None if it gives none."""
    if not isinstance(question, str) and isinstance(items, str):
        question, items = items, question
    told = yield from _ask("answer_each", several(items), {"question": question}, model)
    return Results(told["value"], told)


def pairs(
    left: Iterable[Any],
    right: Iterable[Any],
    condition: str | None = None,
    check: str = "unsure",
    model: str | None = None,
) -> Dialogue:
    """Return the pairs (left item, right item) that meet a condition; `.indexes` has indexes.

    `pairs(items, condition)` pairs the items of one list with each other, each pair once.
    """
    lefts = several(left)
    if condition is None and isinstance(right, str):
        condition, others = right, None
    else:
        others = several(right)
    rights = lefts if others is None else others
    options = {"condition": condition, "check": check}
    told = yield from _ask("pairs", lefts, options, model, others)
    places = [tuple(each) for each in told["value"]]
    return Results([(lefts[one], rights[other]) for one, other in places], told, places)


def rank(
    items: Iterable[Any], criterion: str, k: int | None = None, model: str | None = None
) -> Dialogue:
    """Return the `k` items that meet a criterion best, best first; `.indexes` has their indexes."""
    items = several(items)
    told = yield from _ask("rank", items, {"criterion": criterion, "k": k}, model)
    return Results([items[place] for place in told["value"]], told, told["value"])


def merge(texts: Iterable[Any], question: str, model: str | None = None) -> Dialogue:
    """Answer a question from many texts, such as the answers of `answer_each`."""
    if isinstance(texts, str) and not isinstance(question, str):
        texts, question = question, texts
    kept = [text for text in several(texts) if text is not None]
    told = yield from _ask("merge", kept, {"question": question}, model)
    return told["value"] or ""


def _ask(
    name: str,
    items: list[Any],
    options: dict[str, Any],
    model: str | None,
    others: list[Any] | None = None,
) -> Dialogue:
    arguments: dict[str, Any] = {"name": name, "options": options, "model": model}
    if others is not None:
        arguments["left"] = len(items)
        items = items + others
    arguments["absent"] = [place for place, item in enumerate(items) if item is None]
    texts = ["" if item is None else _text(item) for item in items]
    answer = yield question("operator", wire.to_json(arguments), texts)
    meta(answer, CallFailed)
    told = json.loads(answer.texts(1)[0])
    print(told["note"])
    return told


def _text(item: Any) -> str:
    """Return an item as the text that a model reads."""
    if isinstance(item, (dict, list)):
        try:
            return json.dumps(item, ensure_ascii=False)
        except (TypeError, ValueError):
            return str(item)
    return chunk_text(item)


DIALOGUES = (classify, where, extract, answer_each, pairs, rank, merge)
"""All operators. A cell or a tool may use their names for something else."""
