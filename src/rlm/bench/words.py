"""Words that contexts are made of: plain sentences that say nothing, and names for things."""

import tomllib
from collections.abc import Callable, Iterator
from importlib.resources import files

from rlm.bench.dice import Dice

__all__ = ["ADJECTIVES", "CODE_VERBS", "NOUNS", "coined_names", "paragraphs", "sentence"]

_LISTS = {
    name: tuple(map(str, words))
    for name, words in tomllib.loads(
        files("rlm.bench").joinpath("data").joinpath("words.toml").read_text("utf-8")
    ).items()
}
ADJECTIVES, NOUNS, CODE_VERBS = (_LISTS[name] for name in ("adjectives", "nouns", "code_verbs"))
SUBJECTS, VERBS, OBJECTS, PLACES, TIMES = (
    _LISTS[name] for name in ("subjects", "verbs", "objects", "places", "times")
)


def sentence(dice: Dice) -> str:
    """One of sixteen million sentences, from one number; none holds a digit."""
    number = dice.bits()
    return (
        f"{SUBJECTS[number & 31]} {VERBS[number >> 5 & 31]} {OBJECTS[number >> 10 & 31]} "
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
