"""The questions of `oolong`, each with its gold. Ties are settled in the question itself."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from rlm.bench.dice import Dice
from rlm.bench.tasks._oolong_lines import DAYS, FIRST_DAY, Lines, shown_date

__all__ = ["KINDS", "Question"]

Question = tuple[str, dict[str, Any]]
"""What is asked, and the gold: `kind` says how it is compared."""

NUMBER_ONLY = "Answer with the number only."
LABEL_ONLY = "Answer with the label only."
USER_ONLY = "Answer with the user's number only."
DATE_ONLY = "Answer with the date only, as 2023-01-31."
COMPARED = ("more common", "less common", "equally common")
FIRST_LABEL = "If several are, answer with the first of them in the alphabet."


def _number(value: int) -> dict[str, Any]:
    return {"kind": "number", "value": value}


def _choice(value: str, among: Iterable[str]) -> dict[str, Any]:
    return {"kind": "choice", "value": value, "among": list(among)}


def _user(value: int) -> dict[str, Any]:
    return {"kind": "user", "value": value}


def _date(day: int) -> dict[str, Any]:
    return {"kind": "date", "value": (FIRST_DAY + timedelta(days=day)).isoformat()}


def _present(lines: Lines) -> list[int]:
    """Labels that occur at all, the rarest first."""
    counts = Counter(lines.labels)
    return sorted(counts, key=lambda label: (counts[label], label))


def _common(lines: Lines, labels: Iterable[int], *, least: bool = False) -> str:
    """The label that is most, or least, common among these; of several, the first by its name."""
    counts = Counter(labels)
    every = range(len(lines.source.labels))
    sign = 1 if least else -1
    found = min(every, key=lambda label: (sign * counts[label], lines.source.labels[label]))
    return lines.source.labels[found]


def _compared(one: int, two: int) -> str:
    return COMPARED[0] if one > two else COMPARED[1] if one < two else COMPARED[2]


# -- counting -------------------------------------------------------------------------------------


def _most_common(lines: Lines, _: Dice) -> Question:
    gold = _choice(_common(lines, lines.labels), lines.source.labels)
    return f"Which label is the most common one? {FIRST_LABEL} {LABEL_ONLY}", gold


def _least_common(lines: Lines, _: Dice) -> Question:
    gold = _choice(_common(lines, lines.labels, least=True), lines.source.labels)
    return f"Which label is the least common one? {FIRST_LABEL} {LABEL_ONLY}", gold


def _how_many(lines: Lines, dice: Dice) -> Question:
    label = dice.pick(_present(lines))
    name = lines.source.labels[label]
    return f'How many instances have the label "{name}"? {NUMBER_ONLY}', _number(
        lines.labels.count(label)
    )


def _more_or_less(lines: Lines, dice: Dice) -> Question:
    one, two = dice.sample(range(len(lines.source.labels)), 2)
    names = lines.source.labels
    asked = (
        f'How common is the label "{names[one]}", compared with the label "{names[two]}"? '
        f"Answer with one of: {', '.join(COMPARED)}."
    )
    gold = _compared(lines.labels.count(one), lines.labels.count(two))
    return asked, _choice(gold, COMPARED)


# -- users ----------------------------------------------------------------------------------------


def _of_user(lines: Lines, owner: int) -> list[int]:
    return [label for label, user in zip(lines.labels, lines.owners, strict=True) if user == owner]


def _some_users(lines: Lines, dice: Dice, count: int) -> list[int]:
    """Users who have lines, one of them often."""
    seen = sorted(set(lines.owners))
    often = [owner for owner in seen if owner < lines.often] or seen
    first = dice.pick(often)
    others = [owner for owner in seen if owner != first]
    return [first, *dice.sample(others, min(count - 1, len(others)))]


def _whose_most(lines: Lines, dice: Dice) -> Question:
    label = dice.pick(_present(lines))
    counts = Counter(
        owner for each, owner in zip(lines.labels, lines.owners, strict=True) if each == label
    )
    best = min(counts, key=lambda owner: (-counts[owner], lines.users[owner]))
    name = lines.source.labels[label]
    asked = (
        f'Which user has the most instances with the label "{name}"? If several have as many, '
        f"answer with the smallest of their numbers. {USER_ONLY}"
    )
    return asked, _user(lines.users[best])


def _how_many_of_user(lines: Lines, dice: Dice) -> Question:
    (owner,) = _some_users(lines, dice, 1)
    own = _of_user(lines, owner)
    label = dice.pick(own)
    name, user = lines.source.labels[label], lines.users[owner]
    asked = f'How many instances of user {user} have the label "{name}"? {NUMBER_ONLY}'
    return asked, _number(own.count(label))


def _common_of_users(lines: Lines, dice: Dice) -> Question:
    owners = _some_users(lines, dice, 3)
    labels = [label for owner in owners for label in _of_user(lines, owner)]
    named = ", ".join(str(lines.users[owner]) for owner in owners)
    asked = (
        f"Look only at the instances of these users: {named}. Which label is the most common one "
        f"among them? {FIRST_LABEL} {LABEL_ONLY}"
    )
    return asked, _choice(_common(lines, labels), lines.source.labels)


def _user_with_more(lines: Lines, dice: Dice) -> Question:
    one, two = (_some_users(lines, dice, 2) * 2)[:2]
    label = dice.pick(_present(lines))
    counts = [_of_user(lines, owner).count(label) for owner in (one, two)]
    first, second = lines.users[one], lines.users[two]
    gold = min((-counts[0], first), (-counts[1], second))[1]
    asked = (
        f"Which of the users {first} and {second} has more instances with the label "
        f'"{lines.source.labels[label]}"? If both have as many, answer with the smaller number. '
        f"{USER_ONLY}"
    )
    return asked, _user(gold)


# -- time -----------------------------------------------------------------------------------------


def _days_of(lines: Lines, label: int) -> list[int]:
    return [day for each, day in zip(lines.labels, lines.days, strict=True) if each == label]


def _how_many_before(lines: Lines, dice: Dice) -> Question:
    label, day = dice.pick(_present(lines)), dice.between(DAYS // 4, 3 * DAYS // 4)
    asked = (
        f'How many instances with the label "{lines.source.labels[label]}" are dated before '
        f"{shown_date(day)}? {NUMBER_ONLY}"
    )
    return asked, _number(sum(each < day for each in _days_of(lines, label)))


def _common_after(lines: Lines, dice: Dice) -> Question:
    day = dice.between(DAYS // 4, 3 * DAYS // 4)
    labels = [label for label, each in zip(lines.labels, lines.days, strict=True) if each > day]
    asked = (
        f"Look only at instances dated after {shown_date(day)}. Which label is the most common "
        f"one among them? {FIRST_LABEL} {LABEL_ONLY}"
    )
    return asked, _choice(_common(lines, labels), lines.source.labels)


def _first_date(lines: Lines, dice: Dice) -> Question:
    """Of a user: over all of them, the first day would soon be the answer whatever is asked."""
    (owner,) = _some_users(lines, dice, 1)
    label = dice.pick(_of_user(lines, owner))
    every = zip(lines.labels, lines.owners, lines.days, strict=True)
    asked = (
        f"What is the earliest date of an instance of user {lines.users[owner]} with the label "
        f'"{lines.source.labels[label]}"? {DATE_ONLY}'
    )
    return asked, _date(min(day for each, user, day in every if (each, user) == (label, owner)))


def _busiest_date(lines: Lines, dice: Dice) -> Question:
    label = _present(lines)[-1]
    counts = Counter(_days_of(lines, label))
    best = min(counts, key=lambda day: (-counts[day], day))
    asked = (
        f"On which date are there the most instances with the label "
        f'"{lines.source.labels[label]}"? If there are several, answer with the earliest. '
        f"{DATE_ONLY}"
    )
    return asked, _date(best)


def _before_and_after(lines: Lines, dice: Dice) -> Question:
    label, day = dice.pick(_present(lines)), dice.between(DAYS // 4, 3 * DAYS // 4)
    days = _days_of(lines, label)
    before, after = sum(each < day for each in days), sum(each > day for each in days)
    asked = (
        f'How common are instances with the label "{lines.source.labels[label]}" dated before '
        f"{shown_date(day)}, compared with those dated after it? Compare how many there are of "
        f"each. Answer with one of: {', '.join(COMPARED)}."
    )
    return asked, _choice(_compared(before, after), COMPARED)


KINDS: dict[str, dict[str, Callable[[Lines, Dice], Question]]] = {
    "counting": {
        "most_common": _most_common,
        "how_many": _how_many,
        "least_common": _least_common,
        "more_or_less": _more_or_less,
    },
    "user": {
        "whose_most": _whose_most,
        "how_many_of_user": _how_many_of_user,
        "common_of_users": _common_of_users,
        "user_with_more": _user_with_more,
    },
    "timeline": {
        "how_many_before": _how_many_before,
        "common_after": _common_after,
        "first_date": _first_date,
        "before_and_after": _before_and_after,
        "busiest_date": _busiest_date,
    },
}
"""Variant → its kinds of questions, which seeds go through in turn."""
