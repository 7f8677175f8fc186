"""The prompts of operators such as `classify`: pure functions from items to text.

The instruction comes after the items and states the first and the last number. Small models copy an
example that comes first and then stop; with the range at the end, they answer for every item. A
prompt with a single item asks about it plainly, without numbers.
"""

from collections.abc import Mapping, Sequence

__all__ = [
    "answer_prompt",
    "classify_prompt",
    "compare_prompt",
    "extract_prompt",
    "merge_prompt",
    "order_prompt",
    "pairs_plan_prompt",
    "rate_prompt",
    "where_prompt",
]

NUMBERED = (
    "Write one line per item, `number: {what}`, from `1: …` to `{count}: …`, and nothing else."
)
UNSURE = "Add `?` after the {what} if you are not sure."


def classify_prompt(
    items: Sequence[str],
    codes: Mapping[str, str],
    guide: str = "",
    candidates: Sequence[Sequence[str]] = (),
) -> str:
    """Ask for the label of each item. `codes` maps a short code to each label.

    `candidates` holds, for each item, the codes to choose from.
    """
    labels = "\n".join(f"{code} = {_one_line(label)}" for code, label in codes.items())
    single = len(items) == 1
    ask = (
        f"Which label fits best? Reply with its code only. {UNSURE.format(what='code')}"
        if single
        else f"Give each of the {len(items)} items the label that fits best. "
        f"{_numbered(items, 'code')} {UNSURE.format(what='code')}"
    )
    return _joined(
        f"Labels:\n{labels}", _guide(guide), _candidates(candidates, single), _items(items), ask
    )


def where_prompt(items: Sequence[str], condition: str) -> str:
    """Ask which items meet a condition."""
    ask = (
        f"Does the item meet the condition? Reply yes or no. {UNSURE.format(what='word')}"
        if len(items) == 1
        else f"Say for each of the {len(items)} items whether it meets the condition. "
        f"{_numbered(items, 'yes` or `number: no')} {UNSURE.format(what='word')}"
    )
    return _joined(f"Condition: {condition}", _items(items), ask)


def answer_prompt(items: Sequence[str], question: str) -> str:
    """Ask the same question about each item."""
    none = "Reply `none` if the item does not answer it."
    if len(items) == 1:
        return _joined(_items(items), f"From the item alone: {question}\n\n{none}")
    ask = (
        f"Answer the question for each of the {len(items)} items, from that item alone. "
        f"{_numbered(items, 'answer')} Write `none` where an item does not answer it."
    )
    return _joined(f"Question: {question}", _items(items), ask)


def extract_prompt(items: Sequence[str], shape: str) -> str:
    """Ask for one JSON value for each item; `shape` describes it."""
    if len(items) == 1:
        ask = "Reply with the JSON of the item and nothing else. Use null for what it does not say."
    else:
        ask = (
            f"Write the JSON of each of the {len(items)} items, each on one line. "
            f"{_numbered(items, 'JSON')} Use null for what an item does not say."
        )
    return _joined(shape, _items(items), ask)


def rate_prompt(items: Sequence[str], criterion: str) -> str:
    """Ask how well each item meets a criterion, from 0 to 100."""
    ask = (
        "How well does the item meet the criterion, from 0 to 100? Reply with the number only."
        if len(items) == 1
        else f"Rate how well each of the {len(items)} items meets the criterion, from 0 to 100. "
        f"{_numbered(items, 'rating')}"
    )
    return _joined(f"Criterion: {criterion}", _items(items), ask)


def order_prompt(items: Sequence[str], criterion: str) -> str:
    """Ask for the numbers of the items, the best one first."""
    ask = (
        f"Order the {len(items)} items by the criterion, the best one first. Write the number of "
        "each item once, all on one line, separated by commas, and nothing else."
    )
    return _joined(f"Criterion: {criterion}", _items(items), ask)


def merge_prompt(texts: Sequence[str], question: str, *, is_last: bool) -> str:
    """Ask for one answer from several texts, or for shorter notes that keep every fact."""
    ask = (
        "Answer the question from the items together. Say so if they contradict each other."
        if is_last
        else "Combine the items into notes that keep every fact, name and number that may help to "
        "answer the question. Leave out the rest, and do not answer it yet."
    )
    return _joined(f"Question: {question}", _items(texts), ask)


def pairs_plan_prompt(
    left: Sequence[str], right: Sequence[str], counts: tuple[int, int], condition: str
) -> str:
    """Ask whether labels of single items decide which pairs meet a condition, and which labels."""
    return _joined(
        f"Condition on pairs of a left and a right item: {condition}",
        f"Left items ({len(left)} of {counts[0]:,}):\n{_bullets(left)}",
        f"Right items ({len(right)} of {counts[1]:,}):\n{_bullets(right)}",
        "Can a label for each single item decide which pairs meet the condition? If so, reply with "
        'JSON only: {"left": {"label": "when it applies", …}, "right": {…}, '
        '"match": [["left label", "right label"], …]}, with labels that cover every item, such as '
        '"other". If the items of a pair must be compared with each other, reply with '
        '{"compare": true}.',
    )


def compare_prompt(left: Sequence[str], right: Sequence[str], condition: str) -> str:
    """Ask for the right items that form a pair with each left item."""
    ask = (
        f"For each of the {len(left)} left items, find the right items with which it meets the "
        "condition. Write one line per left item, `number: numbers of right items`, from `1: …` to "
        f"`{len(left)}: …`, and nothing else. Write `none` where there is none."
    )
    return _joined(
        f"Condition on pairs of a left and a right item: {condition}",
        f"Left items:\n{_lines(left)}",
        f"Right items:\n{_lines(right)}",
        ask,
    )


def _joined(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def _numbered(items: Sequence[str], what: str) -> str:
    return NUMBERED.format(what=what, count=len(items))


def _guide(guide: str) -> str:
    return f"Guide: {guide.strip()}" if guide.strip() else ""


def _candidates(candidates: Sequence[Sequence[str]], single: bool) -> str:
    """Return the codes to choose from, before the items, so that the task comes last."""
    if not candidates:
        return ""
    if single:
        return f"Candidates: {' or '.join(candidates[0])}"
    lines = [f"{number}: {' or '.join(codes)}" for number, codes in enumerate(candidates, 1)]
    return "Candidates:\n" + "\n".join(lines)


def _items(items: Sequence[str]) -> str:
    return f"Item:\n{items[0]}" if len(items) == 1 else f"Items:\n{_lines(items)}"


def _lines(items: Sequence[str]) -> str:
    """Number the items; further lines of an item are indented, so that none looks numbered."""
    return "\n".join(
        f"{number}. " + "\n   ".join(item.splitlines()) for number, item in enumerate(items, 1)
    )


def _bullets(items: Sequence[str]) -> str:
    return "\n".join("- " + "\n  ".join(item.splitlines()) for item in items)


def _one_line(text: str) -> str:
    return " ".join(text.split())
