"""The interface of a task: it makes samples from seeds and scores answers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rlm.errors import ConfigError

__all__ = ["Labelling", "Sample", "Task"]


@dataclass(frozen=True)
class Sample:
    """A query, its context, and the right answer.

    The context comes in pieces, the same ones each time, so that ten million tokens need not be in
    memory. `gold` is a JSON value; `facts` are for people who inspect a sample.
    """

    query: str
    pieces: Callable[[], Iterable[str]]
    gold: Any
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def context(self) -> str:
        """Return the whole context, in memory."""
        return "".join(self.pieces())


@dataclass(frozen=True)
class Labelling:
    """How operators answer a sample: label every item, then make the answer from the labels."""

    items: Sequence[str]
    labels: Sequence[str]
    guide: str
    answer: Callable[[Sequence[str | None]], str]


class Task(ABC):
    """Make samples with `generate`, score answers with `score`; the rest is for listings.

    Increase `version` whenever a seed gives another sample or an answer another score: results of
    two versions are never mixed. `smallest` is the smallest size, in tokens. `in_threads`: samples
    may be made in threads, beside runs. Options are keywords of the constructor.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    scoring: ClassVar[str]
    variants: ClassVar[tuple[str, ...]] = ("",)
    smallest: ClassVar[int] = 500
    version: ClassVar[int] = 1
    in_threads: ClassVar[bool] = True

    def __init__(self, variant: str = "") -> None:
        if variant not in self.variants:
            known = ", ".join(self.variants) if self.variants != ("",) else "none"
            raise ConfigError(f"{self.name} has no variant {variant!r}; variants: {known}")
        self.variant = variant

    @abstractmethod
    def generate(self, seed: int, size: int) -> Sample:
        """Return the sample of a seed, whose context has at most about `size` tokens.

        Consecutive seeds cycle through the kinds of questions, so that they are covered evenly.
        """

    @abstractmethod
    def score(self, answer: str, gold: Any) -> float:
        """Return a score from 0 to 1: lenient about form, strict about content."""

    def labelling(self, sample: Sample) -> Labelling | None:
        """Return how operators answer a sample; None if labels of items don't determine it."""
        return None

    def reference(self, gold: Any) -> str:
        """Return a right answer, as a model would write it."""
        return str(gold)

    def identity(self) -> str:
        """Return a text that changes with everything that changes samples or scores."""
        return str(self.version)
