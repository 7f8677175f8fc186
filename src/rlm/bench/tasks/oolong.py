"""Questions that need every line of a text: counting and comparing labels."""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, timedelta
from functools import cached_property
from typing import Any, ClassVar

from rlm.bench import scoring
from rlm.bench.plan import size_chars
from rlm.bench.random_text import SUBJECTS, Dice, LabelledTexts, labelled_texts
from rlm.bench.task import Labelling, Sample, Task

__all__ = ["FIRST_DAY", "KINDS", "Lines", "Oolong", "Question", "introduction", "shown_date"]

FIRST_DAY = date(2022, 1, 1)
DAYS = 730

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Lines:
    """The lines of one sample: drawn once to be counted, and again to be written."""

    def __init__(self, key: Sequence[str | int], chars: int, lines_a_user: int, max_users: int):
        self._key = tuple(key)
        self._chars = chars
        dice = Dice(*key)
        self.dataset = dice.pick(tuple(SUBJECTS))
        self.source: LabelledTexts = labelled_texts(self.dataset)
        self._turn = dice.between(DAYS // 3, 2 * DAYS // 3)
        self._weighted = tuple(_weighted_labels(dice, len(self.source.labels)) for _ in range(2))
        about_lines = chars // 110
        count = max(5, min(max_users, about_lines // lines_a_user))
        self.users: tuple[int, ...] = tuple(dice.sample(range(10_000, 100_000), count))
        self.labels, self.owners, self.days = array("B"), array("H"), array("H")
        for label, owner, day, _ in self._drawn():
            self.labels.append(label)
            self.owners.append(owner)
            self.days.append(day)

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def often(self) -> int:
        """Return whether a user is among the few who have four of five lines."""
        return max(1, len(self.users) // 5)

    def pieces(self) -> Iterator[str]:
        for _, owner, day, text in self._drawn():
            yield self._line(owner, day, text)

    def _drawn(self) -> Iterator[tuple[int, int, int, str]]:
        """Yield label, user, day and text of each line, always the same ones."""
        dice, written = Dice(*self._key, "lines"), 0
        users, often, texts = len(self.users), self.often, self.source.texts
        while True:
            day = dice.below(DAYS)
            label = dice.pick(self._weighted[day >= self._turn])
            is_frequent = dice.below(5) < 4 or users == often
            owner = dice.below(often) if is_frequent else often + dice.below(users - often)
            text = dice.pick(texts[label])
            written += len(self._line(owner, day, text))
            if written > self._chars:
                return
            yield label, owner, day, text

    def _line(self, owner: int, day: int, text: str) -> str:
        return f"Date: {shown_date(day)} || User: {self.users[owner]} || Instance: {text}\n"


def _weighted_labels(dice: Dice, count: int) -> tuple[int, ...]:
    """Return labels weighted by squares, so that some are rare and some are not."""
    return tuple(label for label in range(count) for _ in range((1 + dice.below(9)) ** 2))


def shown_date(day: int) -> str:
    """Return a date as in a line: Mar 07, 2023."""
    when = FIRST_DAY + timedelta(days=day)
    return f"{_MONTHS[when.month - 1]} {when.day:02d}, {when.year}"


Question = tuple[str, dict[str, Any]]
"""The question and the right answer; `kind` says how it is compared."""

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
    """Return labels that occur, rarest first."""
    counts = Counter(lines.labels)
    return sorted(counts, key=lambda label: (counts[label], label))


def _common(lines: Lines, labels: Iterable[int], *, least: bool = False) -> str:
    """Return the most or least common label; of several, the first by name."""
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
    """Return users who have lines, one of them often."""
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
    """Ask for a user's first day; over all users it would almost always be the same."""
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


LINES_A_USER = 8
MAX_USERS = 5_000


class Oolong(Task):
    """Label every line, then count."""

    name = "oolong"
    about = "label every line of a long list, then aggregate (OOLONG)"
    scoring = "exact match; numbers 0.75 to the power of the error; dates as dates"
    variants: ClassVar[tuple[str, ...]] = tuple(KINDS)

    def __init__(self, variant: str = "counting") -> None:
        super().__init__(variant)

    def generate(self, seed: int, size: int) -> Sample:
        key = self.name, self.variant, self.version, seed, size
        lines = Lines(key, size_chars(size), LINES_A_USER, MAX_USERS)
        kinds = list(KINDS[self.variant])
        kind = kinds[seed % len(kinds)]
        asked, gold = KINDS[self.variant][kind](lines, Dice(*key, "question"))
        facts = {
            "question": kind,
            "texts": lines.dataset,
            "lines": len(lines),
            "users": len(lines.users),
        }
        return Sample(f"{introduction(lines)} {asked}", lines.pieces, gold, facts)

    def score(self, answer: str, gold: Any) -> float:
        value = gold["value"]
        if gold["kind"] == "choice":
            return scoring.choice(answer, value, gold["among"])
        if gold["kind"] == "date":
            return scoring.day(answer, value)
        if gold["kind"] == "user":
            return scoring.identifier(answer, str(value))
        return scoring.number(answer, value)

    def labelling(self, sample: Sample) -> Labelling | None:
        """Label the instances, then count; questions about users and dates are not answered."""
        if self.variant != "counting":
            return None
        dataset = sample.facts["texts"]
        labels = labelled_texts(dataset).labels
        asked = sample.query.partition("inferred from the instance.")[2]
        named = re.findall(r'"([^"]+)"', asked)

        def answer(found: Sequence[str | None]) -> str:
            return _counted(sample.facts["question"], Counter(found), labels, named)

        items = [line.partition("|| Instance: ")[2] for line in sample.context.splitlines()]
        return Labelling(items, labels, f"Each item is {SUBJECTS[dataset]}.", answer)

    def reference(self, gold: Any) -> str:
        return str(gold["value"])


def _counted(
    kind: str, counts: Counter[str | None], labels: Sequence[str], named: Sequence[str]
) -> str:
    """Return the answer to a question of the variant `counting` from how often each label is."""
    if kind == "how_many":
        return str(counts[named[0]])
    if kind == "more_or_less":
        return _compared(counts[named[0]], counts[named[1]])
    sign = -1 if kind == "most_common" else 1
    return min(labels, key=lambda label: (sign * counts[label], label))


def introduction(lines: Lines) -> str:
    """Return what the lines are and which labels there are, the same for every question."""
    labels = ", ".join(f'"{label}"' for label in lines.source.labels)
    return (
        f"Each line of the context has a date, a user's number and an instance, which is "
        f"{SUBJECTS[lines.dataset]}. Every instance belongs to exactly one of these labels: "
        f"{labels}. The labels are not in the text: each has to be inferred from the instance."
    )
