"""`s-niah`: numbers stated once, somewhere in a long text that says nothing.

Modelled on RULER: a key is an adjective and a noun, a value has seven digits.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from rlm.bench import scoring
from rlm.bench.plan import size_chars
from rlm.bench.random_text import ADJECTIVES, NOUNS, Dice, paragraphs
from rlm.bench.task import Sample, Task
from rlm.errors import ConfigError

__all__ = ["Needles"]

SEVERAL = 4
"""The number of keys or values, where there are several."""

DEPTHS = 11
"""Without a depth, seeds take 0 %, 10 % … 100 % in turn."""


MARGIN = 200
"""A needle may come a sentence or two early, so that the last ones still fit."""


class _Needle(NamedTuple):
    """A needle: its offset in characters, and its sentence."""

    place: int
    text: str


class Needles(Task):
    """Find numbers by their keys. `depth`: where the first of them is, in percent of the text."""

    name = "s-niah"
    about = "find numbers by their keys in a long text (RULER's needles)"
    scoring = "fraction of the numbers found in the answer, as in RULER"
    variants: ClassVar[tuple[str, ...]] = ("single", "multi-key", "multi-value", "multi-query")

    def __init__(self, variant: str = "single", depth: int | None = None) -> None:
        super().__init__(variant)
        if depth is not None and not (isinstance(depth, int) and 0 <= depth <= 100):
            raise ConfigError(f"the depth of {self.name} must be 0 to 100 percent, not {depth!r}")
        self.depth = depth

    def generate(self, seed: int, size: int) -> Sample:
        dice = Dice(self.name, self.variant, self.version, seed, size)
        keys = _keys(dice, 1 if self.variant in {"single", "multi-value"} else SEVERAL)
        values = _values(dice, SEVERAL if self.variant == "multi-value" else len(keys))
        said = [(keys[number % len(keys)], value) for number, value in enumerate(values)]
        asked = keys if self.variant == "multi-query" else keys[:1]
        depth = self.depth if self.depth is not None else seed % DEPTHS * 100 // (DEPTHS - 1)
        needles = _placed(dice, said, size_chars(size), depth)

        def pieces() -> Iterator[str]:
            return _text(Dice(self.name, "filler", seed, size), size_chars(size), needles)

        gold = [value for key, value in said if key in asked]
        facts = {"depth": depth, "keys": asked}
        return Sample(_query(asked, len(gold)), pieces, gold, facts)

    def score(self, answer: str, gold: Any) -> float:
        return scoring.numbers_found(answer, gold)

    def reference(self, gold: Any) -> str:
        return ", ".join(gold)


def _keys(dice: Dice, count: int) -> list[str]:
    """Return keys that share no word, so that no key resembles another."""
    firsts, seconds = dice.sample(ADJECTIVES, count), dice.sample(NOUNS, count)
    return [f"{one}-{two}" for one, two in zip(firsts, seconds, strict=True)]


def _values(dice: Dice, count: int) -> list[str]:
    values: dict[str, None] = {}
    while len(values) < count:
        values[str(dice.between(1_000_000, 9_999_999))] = None
    return list(values)


def _placed(
    dice: Dice, said: Sequence[tuple[str, str]], chars: int, depth: int
) -> tuple[_Needle, ...]:
    """Return the first needle at the given depth and the others anywhere, in text order."""
    texts = [f"The access number for {key} is {value}." for key, value in said]
    room = chars - sum(len(text) + 2 for text in texts)
    places = [room * depth // 100, *(dice.below(room) for _ in texts[1:])]
    return tuple(sorted(map(_Needle, places, texts)))


def _text(dice: Dice, chars: int, needles: Sequence[_Needle]) -> Iterator[str]:
    ahead = list(reversed(needles))

    def put(written: int) -> str | None:
        due = ahead and written + MARGIN >= ahead[-1].place
        return ahead.pop().text if due else None

    return paragraphs(dice, chars, put)


def _query(asked: Sequence[str], count: int) -> str:
    named = ", ".join(asked[:-1]) + f" and {asked[-1]}" if len(asked) > 1 else asked[0]
    if count == 1:
        return f"What is the access number for {named}? Answer with the number only."
    what = "access numbers" if len(asked) > 1 else f"{count} access numbers"
    return f"What are the {what} for {named}? Answer with the {count} numbers, one a line."
