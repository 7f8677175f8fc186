"""How right an answer is, from 0 to 1; the tasks choose among these."""

import math
from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet
from datetime import date

from rlm.bench import answers

__all__ = ["choice", "day", "f1", "identifier", "letter", "number", "numbers_found"]

CLOSENESS = 0.75
"""What each unit of error leaves of a number's score, as OOLONG has it."""


def f1(found: AbstractSet[Hashable], wanted: AbstractSet[Hashable]) -> float:
    """The harmonic mean of precision and recall; of nothing wanted and nothing found it is 1."""
    if not found and not wanted:
        return 1.0
    return 2 * len(found & wanted) / (len(found) + len(wanted))


def number(answer: str, wanted: int) -> float:
    """1 if it is the number, 0.75 if it is off by one, 0.75² if by two; 0 without a number."""
    said = answers.one_number(answer)
    if said is None or not math.isfinite(said):
        return 0.0
    return float(CLOSENESS ** abs(said - wanted))


def day(answer: str, wanted: str) -> float:
    """1 if it is the date, however it is written."""
    return float(answers.one_date(answer) == date.fromisoformat(wanted))


def choice(answer: str, wanted: str, among: Sequence[str]) -> float:
    """1 if it names this one of several, and no other."""
    return float(answers.one_choice(answer, among) == wanted)


def letter(answer: str, wanted: str, options: Sequence[str]) -> float:
    """1 if it is this choice of four."""
    return float(answers.one_letter(answer, options) == wanted)


def numbers_found(answer: str, wanted: Sequence[str]) -> float:
    """The fraction of these numbers that stand anywhere in the answer, as RULER has it."""
    said = set(answers.all_numbers(answer[: answers.MOST_CHARS]))
    return sum(each in said for each in wanted) / len(wanted)


def identifier(answer: str, wanted: str) -> float:
    """1 if this is the only number with so many digits that is named."""
    return float(_numbers_like(answer, wanted) == {wanted})


def _numbers_like(answer: str, one: str) -> set[str]:
    numbers = answers.all_numbers(answers.final_text(answer))
    return {each for each in numbers if len(each) == len(one)}
