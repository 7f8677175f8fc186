"""Seeded random choices, words and texts for generated samples."""

import hashlib
import tomllib
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple, TypeVar

__all__ = [
    "ADJECTIVES",
    "CODE_VERBS",
    "NOUNS",
    "SUBJECTS",
    "Dice",
    "LabelledTexts",
    "coined_names",
    "labelled_texts",
    "paragraphs",
    "sentence",
]

T = TypeVar("T")

_WORD = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15


class Dice:
    """A stream of random numbers determined by its key, a sequence of texts and integers."""

    __slots__ = ("_state",)

    def __init__(self, *key: str | int) -> None:
        whole = "\0".join(f"{type(part).__name__}:{part}" for part in key)
        self._state = int.from_bytes(hashlib.sha256(whole.encode()).digest()[:8], "big")

    def bits(self) -> int:
        """Return the next number of 64 bits."""
        self._state = state = (self._state + _STEP) & _WORD
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _WORD
        return state ^ (state >> 31)

    def below(self, bound: int) -> int:
        """Return a number from 0 to `bound` - 1; `bound` is far below 2**64."""
        return (self.bits() * bound) >> 64

    def between(self, least: int, most: int) -> int:
        """Return a number between two ends, both included."""
        return least + self.below(most - least + 1)

    def pick(self, among: Sequence[T]) -> T:
        return among[self.below(len(among))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Shuffle in place; every order is equally likely."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]

    def sample(self, among: Sequence[T], count: int) -> list[T]:
        """Return N different items of a sequence, in random order."""
        places: dict[int, int] = {}
        taken = []
        for number in range(count):
            place = number + self.below(len(among) - number)
            taken.append(among[places.get(place, place)])
            places[place] = places.get(number, number)
        return taken


_LISTS = {
    name: tuple(map(str, words))
    for name, words in tomllib.loads(
        files("rlm.bench").joinpath("data").joinpath("words.toml").read_text("utf-8")
    ).items()
}
ADJECTIVES, NOUNS, CODE_VERBS = (_LISTS[name] for name in ("adjectives", "nouns", "code_verbs"))
SENTENCE_SUBJECTS, VERBS, OBJECTS, PLACES, TIMES = (
    _LISTS[name] for name in ("subjects", "verbs", "objects", "places", "times")
)


def sentence(dice: Dice) -> str:
    """Return one of sixteen million sentences, from one number; none contains a digit."""
    number = dice.bits()
    return (
        f"{SENTENCE_SUBJECTS[number & 31]} {VERBS[number >> 5 & 31]} {OBJECTS[number >> 10 & 31]} "
        f"{PLACES[number >> 15 & 31]} {TIMES[number >> 20 & 15]}."
    )


def paragraphs(dice: Dice, chars: int, put: Callable[[int], str | None]) -> Iterator[str]:
    """Yield sentences in paragraphs of seven, up to N characters.

    Before each sentence, `put` is called with the length so far and may return its own sentence.
    """
    written = count = 0
    while True:
        own = put(written)
        text = sentence(dice) if own is None else own
        count += 1
        piece = text + ("\n\n" if count % 7 == 0 else " ")
        if written + len(piece) > chars and own is None:
            return
        written += len(piece)
        yield piece


def coined_names(dice: Dice, count: int, ends: tuple[str, ...]) -> list[str]:
    """Return N different names that no language has: Velmora, Tarbrick."""
    heads = ("B", "Br", "C", "D", "Dr", "F", "G", "Gr", "H", "K", "L", "M", "N", "P", "R", "S", "T")
    middles = ("al", "an", "ar", "el", "en", "er", "il", "in", "ol", "or", "ul", "un", "av", "ev")
    joints = ("b", "d", "f", "g", "k", "l", "m", "n", "r", "s", "t", "v", "w", "z")
    names: dict[str, None] = {}
    while len(names) < count:
        middle = dice.pick(middles) + dice.pick(joints) if dice.below(3) else ""
        names[f"{dice.pick(heads)}{middle}{dice.pick(middles)}{dice.pick(ends)}"] = None
    return list(names)


SUBJECTS = {
    "banking77": "a question that somebody asked a bank",
    "clinc150": "something that somebody said to an assistant",
    "sms_spam": "a text message that somebody received",
}
"""Dataset → a description of its texts."""


class LabelledTexts(NamedTuple):
    """The labels in order, and the texts of each."""

    labels: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]


@cache
def labelled_texts(name: str) -> LabelledTexts:
    """Return all texts of a dataset."""
    data = files("rlm.bench").joinpath("data").joinpath(f"{name}.tsv").read_text("utf-8")
    by_label: dict[str, list[str]] = {}
    for line in data.splitlines():
        label, _, text = line.partition("\t")
        by_label.setdefault(label, []).append(text)
    return LabelledTexts(tuple(by_label), tuple(map(tuple, by_label.values())))
