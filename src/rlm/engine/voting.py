"""Count equal answers of several runs, and tell when no other answer can win."""

import json
import re
import unicodedata
from decimal import Decimal, InvalidOperation
from typing import Any

__all__ = ["Tally", "ballot_of"]

_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_ENDING = " \t.,;:!?"
_MARKS = "\"'`*“”‘’"
_LONGEST_NUMBER_CHARS = 100
MAX_COMPARED_CHARS = 100_000
"""Longer answers must be identical: normalizing may turn one character into 18."""


def ballot_of(answer: str, answer_json: str | None = None) -> str:
    """Return a text that equal answers have in common.

    Lists and dicts are compared by value, numbers too: 1,000 is 1000.0. In other texts,
    case, white space, enclosing quotation marks and final punctuation do not count.
    """
    if max(len(answer), len(answer_json or "")) > MAX_COMPARED_CHARS:
        return answer
    if answer_json is not None and answer_json.lstrip()[:1] in ("{", "["):
        try:
            return json.dumps(_by_value(json.loads(answer_json)), sort_keys=True)
        except (ValueError, RecursionError):
            pass  # Compare it as text.
    text = " ".join(unicodedata.normalize("NFKC", answer).casefold().split())
    text = text.strip(_MARKS).rstrip(_ENDING).strip(_MARKS)
    text = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), text)
    return _number(text) or text


def _number(text: str) -> str | None:
    """Return a number in one form; None if the text is not a number."""
    if len(text) > _LONGEST_NUMBER_CHARS or not text.lstrip("+-.")[:1].isdigit():
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    whole = text.lstrip("+-")
    if not value.is_finite() or (whole[:1] == "0" and whole[1:2].isdigit()):
        return None  # 007 is a name, not a number.
    return f"{value.normalize():f}" if abs(value.adjusted()) < _LONGEST_NUMBER_CHARS else None


def _by_value(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_by_value(each) for each in value]
    if isinstance(value, dict):
        return {key: _by_value(each) for key, each in value.items()}
    return value


class Tally:
    """The votes of `count` samples, as they come in."""

    def __init__(self, count: int) -> None:
        self.left = count
        self._votes: dict[str, list[int]] = {}

    def add(self, number: int, ballot: str | None) -> None:
        """Count the vote of a sample; None if it has no answer."""
        self.left -= 1
        if ballot is not None:
            self._votes.setdefault(ballot, []).append(number)

    def votes_of(self, number: int) -> int:
        """Return how many samples have the same answer as this one; 0 if it has none."""
        return next((len(each) for each in self._votes.values() if number in each), 0)

    @property
    def missing(self) -> int:
        """How many more votes would settle it in favour of the leader; 0 or less if it is settled.

        It is settled when the runs that are left can't make another answer equally frequent.
        """
        first, second = sorted((0, 0, *map(len, self._votes.values())))[:-3:-1]
        return (self.left + second - first) // 2 + 1

    @property
    def is_settled(self) -> bool:
        return self.missing <= 0

    @property
    def leaders(self) -> list[int]:
        """The first sample of each of the most frequent answers, in the order of samples."""
        most = max(map(len, self._votes.values()), default=0)
        return sorted(min(each) for each in self._votes.values() if len(each) == most)
