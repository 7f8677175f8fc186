"""`oolong-pairs`: all pairs of users that satisfy a condition; the work grows quadratically.

Twenty shapes of questions, as in the paper on recursive language models: ten ask the same of both
users, ten ask something else of each. Labels, numbers and dates are drawn per sample.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from rlm.bench import scoring
from rlm.bench.plan import size_chars
from rlm.bench.random_text import Dice
from rlm.bench.task import Sample, Task
from rlm.bench.tasks.oolong import DAYS, Lines, introduction, shown_date

__all__ = ["OolongPairs"]

LINES_A_USER = 6
MAX_USERS = 150
MAX_PAIRS = 1_000
"""As many as an answer can list; conditions are drawn again until this limit is kept."""

TRIES = 100


class Profile:
    """What counts about one user: the frequency of each label, its first and last dates."""

    def __init__(self, labels: int) -> None:
        self.counts = [0] * labels
        self.earliest = [DAYS] * labels
        self.last_day = -1
        self.last_labels: set[int] = set()

    def add(self, label: int, day: int) -> None:
        self.counts[label] += 1
        self.earliest[label] = min(self.earliest[label], day)
        if day > self.last_day:
            self.last_day, self.last_labels = day, set()
        if day == self.last_day:
            self.last_labels.add(label)


class Condition(NamedTuple):
    """A condition on a user, and its wording."""

    words: str
    holds: Callable[[Profile], bool]


class _Drawn:
    """What a question is about: two labels, and conditions over them.

    Their numbers and dates are taken from users, so that some users satisfy them and some do not.
    """

    def __init__(self, lines: Lines, profiles: Sequence[Profile], dice: Dice) -> None:
        self._names = lines.source.labels
        self.one, self.two = dice.sample(range(len(self._names)), 2)
        self._profiles, self._dice = profiles, dice

    def has(self, label: int) -> Condition:
        least = self._some_count(label)
        words = f"has at least {_instances(least)} with the label {self._quoted_name(label)}"
        return Condition(words, lambda user: user.counts[label] >= least)

    def between(self, label: int) -> Condition:
        least = self._some_count(label)
        most = least + least // 8
        number = f"exactly {_instances(least)}" if most == least else f"{least} to {most} instances"
        words = f"has {number} with the label {self._quoted_name(label)}"
        return Condition(words, lambda user: least <= user.counts[label] <= most)

    def lacks(self, label: int) -> Condition:
        counts = sorted(user.counts[label] for user in self._profiles)
        bound = 1 + counts[self._dice.between(1, max(1, len(counts) // 4))]
        number = "no instance" if bound == 1 else f"fewer than {bound} instances"
        words = f"has {number} with the label {self._quoted_name(label)}"
        return Condition(words, lambda user: user.counts[label] < bound)

    def both(self) -> Condition:
        first, second = self.has(self.one), self.has(self.two)
        words = f"{first.words} and {second.words}"
        return Condition(words, lambda user: first.holds(user) and second.holds(user))

    def only_one(self) -> Condition:
        first, second = self.has(self.one), self.has(self.two)
        words = f"either {first.words} or {second.words}, but not both"
        return Condition(words, lambda user: first.holds(user) != second.holds(user))

    def more(self) -> Condition:
        one, two = self._quoted_name(self.one), self._quoted_name(self.two)
        words = f"has more instances with the label {one} than with the label {two}"
        return Condition(words, lambda user: user.counts[self.one] > user.counts[self.two])

    def before(self, label: int) -> Condition:
        day = self._some_day(label) + 1
        words = (
            f"has at least one instance with the label {self._quoted_name(label)} dated before "
            f"{shown_date(day)}"
        )
        return Condition(words, lambda user: user.earliest[label] < day)

    def only_after(self, label: int) -> Condition:
        day = self._some_day(label, late=True) - 1
        words = (
            f"has instances with the label {self._quoted_name(label)}, all of them dated after "
            f"{shown_date(day)}"
        )
        return Condition(words, lambda user: day < user.earliest[label] < DAYS)

    def latest(self, label: int) -> Condition:
        words = (
            f"has an instance with the label {self._quoted_name(label)} on the latest of its dates"
        )
        return Condition(words, lambda user: label in user.last_labels)

    def _quoted_name(self, label: int) -> str:
        return f'"{self._names[label]}"'

    def _some_count(self, label: int) -> int:
        """Return the count of some user in the upper third, at least one."""
        counts = sorted((user.counts[label] for user in self._profiles), reverse=True)
        return max(1, counts[self._dice.between(1, max(1, len(counts) // 3))])

    def _some_day(self, label: int, *, late: bool = False) -> int:
        """The first day of some user who is among the third that has the label first, or last."""
        days = sorted((user.earliest[label] for user in self._profiles), reverse=late)
        days = [day for day in days if day < DAYS] or [DAYS // 2, DAYS // 2]
        place = min(len(days) - 1, self._dice.between(1, max(1, len(days) // 3)))
        return min(DAYS - 2, max(1, days[place]))


def _instances(count: int) -> str:
    return "one instance" if count == 1 else f"{count} instances"


Shape = Callable[[_Drawn], tuple[Condition, Condition]]


def _of_both(make: Callable[[_Drawn], Condition]) -> Shape:
    def both(drawn: _Drawn) -> tuple[Condition, Condition]:
        condition = make(drawn)
        return condition, condition

    return both


SHAPES: tuple[Shape, ...] = (
    _of_both(lambda d: d.has(d.one)),
    _of_both(lambda d: d.between(d.one)),
    _of_both(lambda d: d.lacks(d.one)),
    _of_both(lambda d: d.both()),
    _of_both(lambda d: d.only_one()),
    _of_both(lambda d: d.more()),
    _of_both(lambda d: d.before(d.one)),
    _of_both(lambda d: d.only_after(d.one)),
    _of_both(lambda d: d.latest(d.one)),
    _of_both(lambda d: d.between(d.two)),
    lambda d: (d.has(d.one), d.has(d.two)),
    lambda d: (d.has(d.one), d.lacks(d.two)),
    lambda d: (d.between(d.one), d.has(d.two)),
    lambda d: (d.between(d.one), d.between(d.two)),
    lambda d: (d.both(), d.latest(d.one)),
    lambda d: (d.more(), d.between(d.one)),
    lambda d: (d.before(d.one), d.only_after(d.two)),
    lambda d: (d.only_after(d.one), d.between(d.two)),
    lambda d: (d.latest(d.one), d.before(d.two)),
    lambda d: (d.before(d.one), d.has(d.two)),
)
"""Conditions on the one user and on the other; the same twice is asked of both."""


class OolongPairs(Task):
    """Name every pair of users for whom the conditions hold."""

    name = "oolong-pairs"
    about = "all pairs of users that satisfy conditions on hidden labels and dates; 20 shapes"
    scoring = "F1 over unordered pairs"
    smallest = 2_000

    def generate(self, seed: int, size: int) -> Sample:
        key = self.name, self.version, seed, size
        lines = Lines(key, size_chars(size), LINES_A_USER, MAX_USERS)
        profiles = _profiles(lines)
        dice = Dice(*key, "question")
        for _ in range(TRIES):
            drawn = _Drawn(lines, list(profiles.values()), dice)
            first, second = SHAPES[seed % len(SHAPES)](drawn)
            gold = sorted(_pairs(profiles, first, second))
            if 1 <= len(gold) <= MAX_PAIRS:
                break
        query = f"{introduction(lines)} {_question(first, second)}"
        facts = {"shape": seed % len(SHAPES) + 1, "texts": lines.dataset, "pairs": len(gold)}
        return Sample(query, lines.pieces, [list(pair) for pair in gold], facts)

    def score(self, answer: str, gold: Any) -> float:
        return scoring.f1(scoring.all_pairs(answer), {frozenset(pair) for pair in gold})

    def reference(self, gold: Any) -> str:
        return "\n".join(f"({one}, {two})" for one, two in gold)


def _profiles(lines: Lines) -> dict[int, Profile]:
    """By the numbers of the users who have lines."""
    found: dict[int, Profile] = {}
    for label, owner, day in zip(lines.labels, lines.owners, lines.days, strict=True):
        user = lines.users[owner]
        if user not in found:
            found[user] = Profile(len(lines.source.labels))
        found[user].add(label, day)
    return found


def _pairs(
    profiles: dict[int, Profile], first: Condition, second: Condition
) -> Iterator[tuple[int, int]]:
    ones = {user for user, profile in profiles.items() if first.holds(profile)}
    twos = {user for user, profile in profiles.items() if second.holds(profile)}
    for one, two in combinations(sorted(ones | twos), 2):
        if (one in ones and two in twos) or (one in twos and two in ones):
            yield one, two


def _question(first: Condition, second: Condition) -> str:
    if first.words == second.words:
        condition = f"such that each of the two {first.words}"
    else:
        condition = f"such that one of the two {first.words}, and the other one {second.words}"
    return (
        f"List all pairs of different users {condition}. Only users with at least one line count. "
        f"Each pair is listed once, in any order. Answer with the pairs only, one a line, as "
        f"(12345, 67890)."
    )
