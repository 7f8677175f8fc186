"""Random numbers that are the same on every machine and with every Python.

The standard library promises that only of `random.random()`: what `choice`, `shuffle` or `sample`
draw for a seed has changed between versions, and sets and `hash()` differ from process to process.
Gold must not. So this is SplitMix64, in whole numbers: no float, no library, fifteen lines.
"""

import hashlib
from collections.abc import MutableSequence, Sequence
from typing import TypeVar

__all__ = ["Dice"]

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
