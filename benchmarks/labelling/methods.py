"""The ways of labelling that are compared, each from items to labels and tokens.

All of them complete what a reply leaves out. The first five send the same prompts, those of
`rlm.operators.classify`; only what they ask again differs. The last one is what the prompt of the
loop taught models to write before there were operators.
"""

import re
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, NamedTuple

from rlm.messages import Message, Request
from rlm.operators import aclassify
from rlm.testing import NoisyOracle
from rlm.testing.label_prompts import plain_prompt

__all__ = ["BASELINES", "METHODS", "Labelled", "Method"]

Check = Literal["none", "unsure", "all"]
Labels = list[str | None]

TAUGHT_GROUP = 50
"""How many lines the taught pattern puts into a prompt."""
TAUGHT_TRIES = 3
"""How often it asks about a single line until the reply names a label."""


class Labelled(NamedTuple):
    """Labels in the order of the items, None where there is none, and what they took."""

    labels: Labels
    tokens: int
    requests: int


Method = Callable[[NoisyOracle, Sequence[str], Sequence[str]], Coroutine[Any, Any, Labelled]]


async def _classified(
    oracle: NoisyOracle, items: Sequence[str], labels: Sequence[str], check: Check
) -> Labelled:
    found = await aclassify(items, labels, check=check, model=oracle)
    total: Any = found.run.usage.total
    return Labelled(list(found), total.total_tokens, total.requests)


def _sum(labels: Labels, *parts: Labelled) -> Labelled:
    return Labelled(
        labels, sum(each.tokens for each in parts), sum(each.requests for each in parts)
    )


async def one_pass(oracle: NoisyOracle, items: Sequence[str], labels: Sequence[str]) -> Labelled:
    """Ask once about every item."""
    return await _classified(oracle, items, labels, "none")


async def two_passes(oracle: NoisyOracle, items: Sequence[str], labels: Sequence[str]) -> Labelled:
    """Ask twice about every item, and once more where the two differ: that reply counts."""
    first = await _classified(oracle, items, labels, "none")
    second = await _classified(oracle, items, labels, "none")
    found = list(first.labels)
    differ = [place for place, label in enumerate(found) if label != second.labels[place]]
    if not differ:
        return _sum(found, first, second)
    third = await _classified(oracle, [items[place] for place in differ], labels, "none")
    for place, label in zip(differ, third.labels, strict=True):
        found[place] = label
    return _sum(found, first, second, third)


async def vote_of_three(
    oracle: NoisyOracle, items: Sequence[str], labels: Sequence[str]
) -> Labelled:
    """Ask three times about every item: the majority counts, or else the first reply."""
    looks = [await _classified(oracle, items, labels, "none") for _ in range(3)]
    voted: Labels = []
    for votes in zip(*(look.labels for look in looks), strict=True):
        given = [vote for vote in votes if vote is not None]
        voted.append(Counter(given).most_common(1)[0][0] if given else None)
    return _sum(voted, *looks)


async def default(oracle: NoisyOracle, items: Sequence[str], labels: Sequence[str]) -> Labelled:
    """Use `classify` as it is: look again at what the model marks as unsure."""
    return await _classified(oracle, items, labels, "unsure")


async def check_all(oracle: NoisyOracle, items: Sequence[str], labels: Sequence[str]) -> Labelled:
    """Use `classify` with `check="all"`: look twice at everything."""
    return await _classified(oracle, items, labels, "all")


# -- what the prompt taught -----------------------------------------------------------------------


class _Talk:
    """Requests to the oracle, counted."""

    def __init__(self, oracle: NoisyOracle, labels: Sequence[str]) -> None:
        self._oracle, self._labels = oracle, labels
        self.tokens = self.requests = 0

    async def ask(self, items: Sequence[str]) -> dict[int, str]:
        """Return labels by place, as the pattern reads them: `number: label`, in any case."""
        prompt = plain_prompt(items, self._labels)
        request = Request(
            model="oracle", messages=(Message("user", prompt),), max_output_tokens=100_000
        )
        reply = await self._oracle.complete(request, timeout_seconds=60)
        assert reply.usage is not None
        self.tokens += reply.usage.total_tokens
        self.requests += 1
        known = {label.lower(): label for label in self._labels}
        lines = re.findall(r"(\d+)\s*:\s*([\w ]+)", reply.text)
        return {
            int(number) - 1: known[label.strip().lower()]
            for number, label in lines
            if label.strip().lower() in known
        }

    async def pass_over(self, items: Sequence[str]) -> dict[int, str]:
        found: dict[int, str] = {}
        for begin in range(0, len(items), TAUGHT_GROUP):
            got = await self.ask(items[begin : begin + TAUGHT_GROUP])
            found |= {begin + place: label for place, label in got.items()}
        return found


async def as_taught(oracle: NoisyOracle, items: Sequence[str], labels: Sequence[str]) -> Labelled:
    """Ask twice in groups of fifty, with labels in words; ask one by one where the two differ."""
    talk = _Talk(oracle, labels)
    first, second = await talk.pass_over(items), await talk.pass_over(items)
    found: Labels = [first.get(place) for place in range(len(items))]
    for place, label in enumerate(found):
        if label is None or label != second.get(place):
            tries = [first.get(place), second.get(place)]
            for _ in range(TAUGHT_TRIES):
                if settled := (await talk.ask([items[place]])).get(0):
                    tries = [settled]
                    break
            found[place] = next((each for each in tries if each is not None), None)
    return Labelled(found, talk.tokens, talk.requests)


METHODS: dict[str, Method] = {
    "one pass": one_pass,
    "two passes": two_passes,
    "vote of three": vote_of_three,
    "classify": default,
    'classify, check="all"': check_all,
    "as taught": as_taught,
}
BASELINES = ("one pass", "two passes", "vote of three")
"""The methods through which the curve goes that `classify` is held against."""
