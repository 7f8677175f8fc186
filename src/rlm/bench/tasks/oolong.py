"""`oolong`: how many, whose, when. Every line matters, and none says what it is.

In the manner of OOLONG: each line has to be labelled by reading it, and the labels be aggregated.
"""

from typing import Any, ClassVar

from rlm.bench import scoring
from rlm.bench.dice import Dice
from rlm.bench.sizes import size_chars
from rlm.bench.task import Sample, Task
from rlm.bench.tasks._oolong_lines import Lines
from rlm.bench.tasks._oolong_questions import KINDS
from rlm.bench.texts import SUBJECTS

__all__ = ["Oolong", "introduction"]

LINES_A_USER = 8
MOST_USERS = 5_000


class Oolong(Task):
    """Label every line, then count."""

    name = "oolong"
    about = "label every line of a long list, then aggregate (OOLONG)"
    scoring = "exact match; numbers 0.75 to the power of the error; dates as dates"
    variants: ClassVar[tuple[str, ...]] = tuple(KINDS)

    def __init__(self, variant: str = "counting") -> None:
        super().__init__(variant)

    def generate(self, seed: int, size: int) -> Sample:
        key = self.name, self.variant, self.version, seed, size
        lines = Lines(key, size_chars(size), LINES_A_USER, MOST_USERS)
        kinds = list(KINDS[self.variant])
        kind = kinds[seed % len(kinds)]
        asked, gold = KINDS[self.variant][kind](lines, Dice(*key, "question"))
        facts = {
            "question": kind,
            "texts": lines.dataset,
            "lines": len(lines),
            "users": len(lines.users),
        }
        return Sample(f"{introduction(lines)} {asked}", lines.pieces, gold, facts)

    def score(self, answer: str, gold: Any) -> float:
        value = gold["value"]
        if gold["kind"] == "choice":
            return scoring.choice(answer, value, gold["among"])
        if gold["kind"] == "date":
            return scoring.day(answer, value)
        if gold["kind"] == "user":
            return scoring.identifier(answer, str(value))
        return scoring.number(answer, value)

    def reference(self, gold: Any) -> str:
        return str(gold["value"])


def introduction(lines: Lines) -> str:
    """What the lines are, and which labels there are: the same for every question."""
    labels = ", ".join(f'"{label}"' for label in lines.source.labels)
    return (
        f"Each line of the context has a date, a user's number and an instance, which is "
        f"{SUBJECTS[lines.dataset]}. Every instance belongs to exactly one of these labels: "
        f"{labels}. The labels are not in the text: each has to be inferred from the instance."
    )
