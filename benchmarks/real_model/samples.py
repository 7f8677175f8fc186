"""The two tasks of the trials: a number that is said once, and lines to label and count.

Both are tasks of `rlm bench`, made from seeds: `s-niah/single`, and those questions of
`oolong/counting` that ask how many lines have a label.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from rlm.bench.task import Labelling, Task
from rlm.bench.tasks.needles import Needles
from rlm.bench.tasks.oolong import KINDS, Oolong

__all__ = ["TASKS", "TrialSample", "make_sample"]

_KINDS = list(KINDS["counting"])


class TrialSample(NamedTuple):
    """A query, its context, and how an answer is judged. `labelling` is for operators."""

    query: str
    context: str
    gold: str
    score: Callable[[str], float]
    labelling: Labelling | None


def _counting_seed(seed: int) -> int:
    """Return a seed whose question is `how_many`: seeds cycle through the kinds of questions."""
    return seed * len(_KINDS) + _KINDS.index("how_many")


TASKS: dict[str, tuple[Task, Callable[[int], int]]] = {
    "lookup": (Needles("single"), lambda seed: seed),
    "counting": (Oolong("counting"), _counting_seed),
}


def make_sample(task: str, size: int, seed: int) -> TrialSample:
    """Return the sample of a seed, with a context of about `size` tokens."""
    made, seed_of = TASKS[task]
    sample = made.generate(seed_of(seed), size)

    def score(answer: str) -> float:
        return made.score(answer, sample.gold)

    gold = re.sub(r"\s+", " ", made.reference(sample.gold))
    return TrialSample(sample.query, sample.context, gold, score, made.labelling(sample))
