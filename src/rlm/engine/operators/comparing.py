"""Compare items with each other: `pairs` and `rank`."""

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Any

from msgspec import Struct

from rlm.engine.operators.labelling import Check, classify
from rlm.engine.operators.operation import Operation
from rlm.engine.operators.reading import json_in, numbers_in, order_in, rating_in, values_in
from rlm.errors import CallRefused
from rlm.prompts import operators as words

__all__ = ["Paired", "pairs", "rank"]

SAMPLES = 12
SAMPLE_CHARS = 300
MAX_LABELS = 20
LEFT_PER_PROMPT = 0.2
ORDERED_AT_ONCE = 20
"""The most items that one prompt puts into order."""


class Paired(Struct, frozen=True):
    """The pairs of each item, as a function: all pairs of many items would fill the memory.

    `partners` yields the right indexes for a left one; within one list, for any index. The other
    two fields are the indexes of items that could not be judged.
    """

    partners: Callable[[int], Iterator[int]]
    missing_left: frozenset[int] = frozenset()
    missing_right: frozenset[int] = frozenset()


class Plan(Struct, frozen=True):
    """Labels for single items on both sides, and the pairs of labels that match."""

    left: dict[str, str]
    right: dict[str, str]
    match: frozenset[tuple[str, str]]


async def pairs(
    operation: Operation,
    left: Sequence[str],
    right: Sequence[str],
    condition: str,
    check: Check = "unsure",
    *,
    same: bool = False,
) -> Paired:
    """Return the pairs that meet a condition.

    If labels of single items decide it, both sides are classified and code makes the pairs.
    Otherwise the model compares the pairs. With `same`, both sides are one list.
    """
    some, others = ([text[:SAMPLE_CHARS] for text in _spread(side)] for side in (left, right))
    counts = (len(left), len(right))
    reply = await operation.ask(words.pairs_plan_prompt(some, others, counts, condition))
    plan = None if reply is None else _plan(reply)
    if plan is None:
        return await _compared(operation, left, right, condition, same=same)
    operation.figures.notes.append(
        f"pairs derived from {len(plan.left) + len(plan.right)} labels, not compared one by one"
    )
    on_left = await _sorted_by_label(operation, left, plan.left, condition, "left", check)
    if same and plan.left == plan.right:
        on_right = on_left
    else:
        on_right = await _sorted_by_label(operation, right, plan.right, condition, "right", check)
    return Paired(
        _matching(on_left, on_right, plan, same=same),
        frozenset(range(len(left))) - on_left.keys(),
        frozenset(range(len(right))) - on_right.keys(),
    )


def _spread(texts: Sequence[str]) -> Sequence[str]:
    """Return a few texts from the whole list."""
    return texts[:: max(1, ceil(len(texts) / SAMPLES))]


def _plan(reply: str) -> Plan | None:
    """Return the plan that a reply describes; None if it is unusable or wants a comparison."""
    try:
        value = json_in(reply)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("compare") is True:
        return None
    left, right = _label_guide(value.get("left")), _label_guide(value.get("right"))
    match = value.get("match")
    if left is None or right is None or not isinstance(match, list):
        return None
    both = {
        (pair[0], pair[1])
        for pair in match
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(e, str) for e in pair)
    }
    if not both or any(a not in left or b not in right for a, b in both):
        return None
    return Plan(left, right, frozenset(both))


def _label_guide(value: Any) -> dict[str, str] | None:
    if isinstance(value, list):
        value = {each: "" for each in value if isinstance(each, str)}
    if not isinstance(value, dict) or not 2 <= len(value) <= MAX_LABELS:
        return None
    guide = {label: str(when)[:SAMPLE_CHARS] for label, when in value.items() if label.strip()}
    return guide if len({label.casefold() for label in guide}) == len(value) else None


async def _sorted_by_label(
    operation: Operation,
    texts: Sequence[str],
    guide: dict[str, str],
    condition: str,
    side: str,
    check: Check,
) -> dict[int, str]:
    lines = [f"{label}: {when}" for label, when in guide.items() if when]
    about = f"the items are the {side} items of pairs with this condition: {condition}"
    text = "\n".join([about, *lines])
    return (await classify(operation, texts, list(guide), text, check)).labels


def _matching(
    left: dict[int, str], right: dict[int, str], plan: Plan, *, same: bool
) -> Callable[[int], Iterator[int]]:
    """Return a function that yields the partners of an index, by the labels on both sides."""
    as_left, as_right = _by_label(left), _by_label(right)

    def partners(place: int) -> Iterator[int]:
        for one, other in plan.match:
            if left.get(place) == one:
                yield from as_right.get(other, ())
            if same and right.get(place) == other:
                yield from as_left.get(one, ())

    return partners


def _by_label(labels: dict[int, str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, label in labels.items():
        places.setdefault(label, []).append(place)
    return places


async def _compared(
    operation: Operation,
    left: Sequence[str],
    right: Sequence[str],
    condition: str,
    *,
    same: bool,
) -> Paired:
    """Compare every left item with every right one, many of each in one prompt."""
    packing = operation.packing(per_item=LEFT_PER_PROMPT, line_tokens=40)
    half = max(1, packing.chars // 2)
    rights = packing.packs(range(len(right)), right, 5 * packing.items)
    lefts = ceil(len(left) / packing.items)
    room = operation.scope.budget.room().calls
    if lefts * len(rights) > room:
        raise CallRefused(
            f"comparing {len(left):,} items with {len(right):,} takes {lefts * len(rights):,} "
            f"prompts or more, and {room:,} calls are left (max_calls); first keep only the items "
            "that can match, with `where`, or say in the condition what must agree",
            limit="calls",
        )
    partners: dict[int, list[int]] = {}
    seen: dict[int, int] = dict.fromkeys(range(len(left)), 0)
    for pack in rights:
        shown_right = [operation.shown(right[place], packing)[:half] for place in pack]

        def prompt(numbers: list[int], shown: list[str], others: list[str] = shown_right) -> str:
            return words.compare_prompt([text[:half] for text in shown], others, condition)

        def read(reply: str, numbers: list[int], most: int = len(pack)) -> dict[int, list[int]]:
            found = values_in(reply, len(numbers), lambda text: numbers_in(text, most))
            return {number - 1: others for number, others in found.items()}

        found = await operation.each(range(len(left)), left, packing, prompt, read)
        for place, others in found.items():
            seen[place] += 1
            for other in (pack[number - 1] for number in others):
                partners.setdefault(place, []).append(other)
                if same:
                    partners.setdefault(other, []).append(place)
    missing = frozenset(place for place, packs in seen.items() if packs < len(rights))
    return Paired(lambda place: iter(partners.get(place, ())), missing)


async def rank(
    operation: Operation, texts: Sequence[str], criterion: str, k: int
) -> tuple[list[int], list[int]]:
    """Return the indexes of the best `k` texts, best first, and of those without a rating.

    Every text is rated by itself; the best are then ordered side by side.
    """
    packing = operation.packing(line_tokens=12)
    operation.figures.shortened = sum(len(text) > packing.item_chars for text in texts)

    def read(reply: str, pack: list[int]) -> dict[int, float]:
        found = values_in(reply, len(pack), rating_in)
        return {number - 1: rating for number, rating in found.items()}

    ratings = await operation.each(
        range(len(texts)),
        texts,
        packing,
        lambda pack, shown: words.rate_prompt(shown, criterion),
        read,
    )
    order = sorted(ratings, key=lambda place: (-ratings[place], place))
    front = order[: min(ORDERED_AT_ONCE, max(2 * k, k + 5))]
    if len(front) > 1 and operation.refusal is None:
        order = [*await _in_order(operation, front, texts, criterion), *order[len(front) :]]
    missing = [place for place in range(len(texts)) if place not in ratings]
    return order[:k], missing


async def _in_order(
    operation: Operation, front: list[int], texts: Sequence[str], criterion: str
) -> list[int]:
    """Order a few texts side by side; those the reply leaves out follow in their old order."""
    packing = operation.packing()
    most = max(100, packing.item_chars // len(front) - 8)
    shown = [texts[place][:most] for place in front]
    reply = await operation.ask(words.order_prompt(shown, criterion))
    places = [front[number - 1] for number in order_in(reply or "", len(front))]
    if len(places) < len(front) // 2:
        return front  # The reply orders too few: the ratings are better.
    operation.figures.looked_again += len(front)
    ordered = [*places, *(place for place in front if place not in places)]
    operation.figures.changed += sum(a != b for a, b in zip(front, ordered, strict=True))
    return ordered
