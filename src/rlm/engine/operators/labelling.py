"""Label every item: `classify`, and `where` with the labels yes and no.

One pass over everything, then a second look at the items that the model was unsure about, among
other neighbours and with other codes. Where the two looks differ, a third decides between them.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from rlm.engine.operators.operation import Operation, Packing
from rlm.engine.operators.reading import Codes, Label, codes_for, label_in, labels_in, visible
from rlm.prompts import operators as words

__all__ = ["CHECKS", "Check", "Labelled", "classify", "where"]

Check = Literal["unsure", "all", "none"]
CHECKS: tuple[Check, ...] = ("unsure", "all", "none")

YES_NO = Codes({"YES": "yes", "NO": "no"})

Candidates = dict[int, tuple[str, str]]


class Asked(Struct, frozen=True):
    """One look at some items: the codes of the labels, and the labels between which to choose."""

    codes: Codes
    candidates: Candidates


class Labelled(Struct, frozen=True):
    """The label of each text, by its number, and the numbers whose label is in doubt."""

    labels: dict[int, str]
    unsure: frozenset[int]


async def classify(
    operation: Operation,
    texts: Sequence[str],
    labels: Sequence[str],
    guide: str = "",
    check: Check = "unsure",
) -> Labelled:
    """Return the label that fits each text best."""

    def prompt(shown: list[str], asked: Asked, pack: list[int]) -> str:
        by_label = {label: code for code, label in asked.codes.items()}
        choices = [
            [by_label[label] for label in asked.candidates[number]]
            for number in pack
            if number in asked.candidates and len(labels) > 2  # Two labels are both candidates.
        ]
        return words.classify_prompt(shown, asked.codes, guide, choices)

    def codes(look: int) -> Codes:
        # Reverse the order, so that a bias towards the first label does not repeat itself.
        return codes_for(labels if look % 2 == 0 else labels[::-1])

    return await _Looks(operation, texts, prompt, codes).run(check)


async def where(
    operation: Operation, texts: Sequence[str], condition: str, check: Check = "unsure"
) -> Labelled:
    """Return "yes" or "no" for each text."""

    def prompt(shown: list[str], asked: Asked, pack: list[int]) -> str:
        return words.where_prompt(shown, condition)

    return await _Looks(operation, texts, prompt, lambda look: YES_NO).run(check)


class _Looks:
    """Up to three looks at the texts of one operation."""

    def __init__(
        self,
        operation: Operation,
        texts: Sequence[str],
        prompt: Callable[[list[str], Asked, list[int]], str],
        codes: Callable[[int], Codes],
    ) -> None:
        self._operation = operation
        self._texts = texts
        self._prompt = prompt
        self._codes = codes
        self._packing: Packing = operation.packing()

    async def run(self, check: Check) -> Labelled:
        figures = self._operation.figures
        first = await self._look(range(len(self._texts)), 0)
        figures.shortened = sum(len(t) > self._packing.item_chars for t in self._texts)
        labels = {number: label.text for number, label in first.items()}
        doubtful = {number for number, label in first.items() if label.unsure}
        again = {"none": [], "unsure": sorted(doubtful), "all": sorted(first)}[check]
        if not again or self._operation.refusal is not None:
            return Labelled(labels, frozenset(doubtful))
        figures.looked_again = len(again)
        second = await self._look(self._operation.shuffled(again, self._texts), 1)
        doubtful -= {n for n, each in second.items() if each.text == labels[n] and not each.unsure}
        differing: Candidates = {
            number: (labels[number], label.text)
            for number, label in sorted(second.items())
            if label.text != labels[number]
        }
        doubtful |= set(differing)
        settled = await self._settle(differing)
        figures.changed = sum(label != labels[number] for number, label in settled.items())
        return Labelled(labels | settled, frozenset(doubtful))

    async def _settle(self, differing: Candidates) -> dict[int, str]:
        """Return what a third look chooses; the first look counts where it chooses neither."""
        if not differing or self._operation.refusal is not None:
            return {}
        order = self._operation.shuffled(sorted(differing), self._texts)
        third = await self._look(order, 2, differing)
        return {
            number: label.text for number, label in third.items() if label.text in differing[number]
        }

    async def _look(
        self, order: Sequence[int], look: int, candidates: Candidates | None = None
    ) -> dict[int, Label]:
        asked = Asked(self._codes(look), candidates or {})

        def read(reply: str, pack: list[int]) -> dict[int, Label]:
            if len(pack) > 1:
                found = labels_in(reply, len(pack), asked.codes)
                return {number - 1: label for number, label in found.items()}
            return _alone(reply, asked.codes)

        return await self._operation.each(
            order,
            self._texts,
            self._packing,
            lambda pack, shown: self._prompt(shown, asked, pack),
            read,
        )


def _alone(reply: str, codes: Codes) -> dict[int, Label]:
    """Read the reply about one item: a code, or a line that still has a number."""
    reply = visible(reply)
    label = label_in(reply, codes)
    if label is None:
        found = labels_in(reply, 1, codes)
        label = found.get(1)
    if label is None:
        lines = [each for line in reply.splitlines() if (each := label_in(line, codes)) is not None]
        label = lines[0] if len({each.text for each in lines}) == 1 else None
    return {} if label is None else {0: label}
