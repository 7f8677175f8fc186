"""The lines that `oolong` and `oolong-pairs` ask about, and what is hidden in them.

`Date: Mar 07, 2023 || User: 48213 || Instance: …`: the label of an instance is nowhere in the text.
Which labels are common is random for each sample, and changes on a day in its middle; four of five
lines are of a fifth of the users. A line is kept as three small numbers, so that ten million tokens
take a few megabytes.
"""

from array import array
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from functools import cached_property

from rlm.bench.dice import Dice
from rlm.bench.texts import SUBJECTS, LabelledTexts, labelled_texts

__all__ = ["FIRST_DAY", "Lines", "shown_date"]

FIRST_DAY = date(2022, 1, 1)
DAYS = 730
LINE_CHARS = 45
"""What a line has besides its instance, at least."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Lines:
    """The lines of one sample: drawn once to be counted, and again to be written."""

    def __init__(self, key: Sequence[str | int], chars: int, lines_a_user: int, most_users: int):
        self._key = tuple(key)
        self._chars = chars
        dice = Dice(*key)
        self.dataset = dice.pick(tuple(SUBJECTS))
        self.source: LabelledTexts = labelled_texts(self.dataset)
        self._turn = dice.between(DAYS // 3, 2 * DAYS // 3)
        self._weighted = tuple(_weighted_labels(dice, len(self.source.labels)) for _ in range(2))
        about_lines = chars // 110
        count = max(5, min(most_users, about_lines // lines_a_user))
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
        """The first so many users have four lines of five."""
        return max(1, len(self.users) // 5)

    def pieces(self) -> Iterator[str]:
        for _, owner, day, text in self._drawn():
            yield self._line(owner, day, text)

    def _drawn(self) -> Iterator[tuple[int, int, int, str]]:
        """Label, user, day and text of each line, always the same ones."""
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
    """Labels as often as they are to be drawn: squares, so that some are rare and some are not."""
    return tuple(label for label in range(count) for _ in range((1 + dice.below(9)) ** 2))


def shown_date(day: int) -> str:
    """As it stands in a line: Mar 07, 2023."""
    when = FIRST_DAY + timedelta(days=day)
    return f"{_MONTHS[when.month - 1]} {when.day:02d}, {when.year}"
