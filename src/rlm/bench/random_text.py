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
    """A stream of numbers that is fixed by its key: texts and whole numbers, in order."""

    __slots__ = ("_state",)

    def __init__(self, *key: str | int) -> None:
        whole = "\0".join(f"{type(part).__name__}:{part}" for part in key)
        self._state = int.from_bytes(hashlib.sha256(whole.encode()).digest()[:8], "big")

    def bits(self) -> int:
        """The next number of 64 bits."""
        self._state = state = (self._state + _STEP) & _WORD
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _WORD
        return state ^ (state >> 31)

    def below(self, bound: int) -> int:
        """From 0 to one less than `bound`, which is far below 2**64."""
        return (self.bits() * bound) >> 64

    def between(self, least: int, most: int) -> int:
        """Both ends are possible."""
        return least + self.below(most - least + 1)

    def pick(self, among: Sequence[T]) -> T:
        return among[self.below(len(among))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """In place; every order is as likely."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]

    def sample(self, among: Sequence[T], count: int) -> list[T]:
        """So many different places of a sequence, in random order."""
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
    """One of sixteen million sentences, from one number; none holds a digit."""
    number = dice.bits()
    return (
        f"{SENTENCE_SUBJECTS[number & 31]} {VERBS[number >> 5 & 31]} {OBJECTS[number >> 10 & 31]} "
        f"{PLACES[number >> 15 & 31]} {TIMES[number >> 20 & 15]}."
    )


def paragraphs(dice: Dice, chars: int, put: Callable[[int], str | None]) -> Iterator[str]:
    """Sentences in paragraphs of seven, up to so many characters.

    `put` is told how far the text is, before each sentence, and may give one of its own instead.
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
    """So many different names that no language has: Velmora, Tarbrick."""
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
"""Dataset → what its texts are."""


class LabelledTexts(NamedTuple):
    """The labels in their order, and the texts of each."""

    labels: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]


@cache
def labelled_texts(name: str) -> LabelledTexts:
    """All texts of a dataset."""
    data = files("rlm.bench").joinpath("data").joinpath(f"{name}.tsv").read_text("utf-8")
    by_label: dict[str, list[str]] = {}
    for line in data.splitlines():
        label, _, text = line.partition("\t")
        by_label.setdefault(label, []).append(text)
    return LabelledTexts(tuple(by_label), tuple(map(tuple, by_label.values())))
